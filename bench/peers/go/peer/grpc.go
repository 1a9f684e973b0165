package main

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/polyrpc/polyrpc/bench/peers/go/example"
	"github.com/polyrpc/polyrpc/bench/peers/go/helloworld"
	"github.com/polyrpc/polyrpc/bench/peers/go/pb"
)

type grpcConnection struct{ *grpc.ClientConn }

func connectGRPC(l *load) (connection, error) {
	conn, err := grpc.NewClient(l.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	return grpcConnection{conn}, err
}

func (c grpcConnection) caller(l *load) (caller, error) {
	switch l.contract {
	case "echo":
		var request example.EchoRequest
		if err := proto.Unmarshal(l.message, &request); err != nil {
			return nil, err
		}
		stub := example.NewEchoServiceClient(c)
		return func() error {
			reply, err := stub.Echo(context.Background(), &request)
			if err == nil && reply.GetMessage() != request.GetMessage() {
				err = errReply
			}
			return err
		}, nil
	case "hello":
		var request helloworld.HelloRequest
		if err := proto.Unmarshal(l.message, &request); err != nil {
			return nil, err
		}
		stub := helloworld.NewGreeterClient(c)
		return func() error {
			reply, err := stub.SayHello(context.Background(), &request)
			if err == nil && reply.GetMessage() != "Hello "+request.GetName() {
				err = errReply
			}
			return err
		}, nil
	case "say581":
		var request pb.BenchmarkMessage
		if err := proto.Unmarshal(l.message, &request); err != nil {
			return nil, err
		}
		stub := pb.NewHelloClient(c)
		return func() error {
			reply, err := stub.Say(context.Background(), &request)
			if err == nil {
				err = checkSaid(reply, &request)
			}
			return err
		}, nil
	}
	return nil, fmt.Errorf("the gRPC client has no contract %s", l.contract)
}

// checkSaid compares what the service sets, and the longest of what it returns.
func checkSaid(reply, request *pb.BenchmarkMessage) error {
	if reply.GetField1() != "OK" || reply.GetField2() != 100 || reply.GetField129() != request.GetField129() {
		return errReply
	}
	return nil
}
