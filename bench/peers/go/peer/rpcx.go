package main

import (
	"context"
	"flag"
	"fmt"
	"net"

	"github.com/smallnest/rpcx/client"
	rpcxlog "github.com/smallnest/rpcx/log"
	"github.com/smallnest/rpcx/protocol"
	"github.com/smallnest/rpcx/server"
	"google.golang.org/protobuf/proto"

	"github.com/polyrpc/polyrpc/bench/peers/go/example"
	"github.com/polyrpc/polyrpc/bench/peers/go/pb"
)

// Hello is the service of rpcx's benchmark.
type Hello struct{}

// Say returns the message with two fields set anew.
func (Hello) Say(_ context.Context, request *pb.BenchmarkMessage, reply *pb.BenchmarkMessage) error {
	said(request, reply)
	return nil
}

// EchoService returns what it is sent.
type EchoService struct{}

// Echo returns the message.
func (EchoService) Echo(_ context.Context, request *example.EchoRequest, reply *example.EchoResponse) error {
	reply.Message = request.Message
	return nil
}

func said(request, reply *pb.BenchmarkMessage) {
	ok, hundred := "OK", int32(100)
	proto.Merge(reply, request)
	reply.Field1, reply.Field2 = &ok, &hundred
}

func serveRpcx(arguments []string) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:0", "where to listen")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	rpcxlog.SetDummyLogger()
	s := server.NewServer()
	if err := s.RegisterName("Hello", Hello{}, ""); err != nil {
		return err
	}
	if err := s.RegisterName("EchoService", EchoService{}, ""); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	fmt.Println("listening", listener.Addr())
	endWithStandardInput()
	return s.ServeListener("tcp", listener)
}

type rpcxConnection struct{ *client.Client }

func connectRpcx(l *load) (connection, error) {
	option := client.DefaultOption
	switch l.codec {
	case "json":
		option.SerializeType = protocol.JSON
	case "msgpack":
		option.SerializeType = protocol.MsgPack
	default:
		option.SerializeType = protocol.ProtoBuffer
	}
	conn := client.NewClient(option)
	return rpcxConnection{conn}, conn.Connect("tcp", l.address)
}

func (c rpcxConnection) caller(l *load) (caller, error) {
	switch l.contract {
	case "say581":
		var request pb.BenchmarkMessage
		if err := proto.Unmarshal(l.message, &request); err != nil {
			return nil, err
		}
		return func() error {
			var reply pb.BenchmarkMessage
			err := c.Call(context.Background(), "Hello", "Say", &request, &reply)
			if err == nil {
				err = checkSaid(&reply, &request)
			}
			return err
		}, nil
	case "echo":
		var request example.EchoRequest
		if err := proto.Unmarshal(l.message, &request); err != nil {
			return nil, err
		}
		return func() error {
			var reply example.EchoResponse
			err := c.Call(context.Background(), "EchoService", "Echo", &request, &reply)
			if err == nil && reply.GetMessage() != request.GetMessage() {
				err = errReply
			}
			return err
		}, nil
	}
	return nil, fmt.Errorf("the rpcx client has no contract %s", l.contract)
}
