package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"

	"google.golang.org/protobuf/proto"

	"github.com/polyrpc/polyrpc/bench/peers/go/pb"
)

// NetHello is the service of rpcx's benchmark for net/rpc, whose messages are gob.
type NetHello struct{}

// Say returns the message with two fields set anew.
func (NetHello) Say(request *pb.BenchmarkMessage, reply *pb.BenchmarkMessage) error {
	said(request, reply)
	return nil
}

func serveNetRPC(arguments []string, isJSON bool) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:0", "where to listen")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	s := rpc.NewServer()
	if err := s.RegisterName("Hello", NetHello{}); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	fmt.Println("listening", listener.Addr())
	endWithStandardInput()
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		if isJSON {
			go s.ServeCodec(jsonrpc.NewServerCodec(conn))
		} else {
			go s.ServeConn(conn)
		}
	}
}

// endWithStandardInput ends a server whose starter was killed.
func endWithStandardInput() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
}

type netRPCConnection struct{ *rpc.Client }

func connectNetRPC(l *load) (connection, error) {
	conn, err := rpc.Dial("tcp", l.address)
	return netRPCConnection{conn}, err
}

func connectNetRPCJSON(l *load) (connection, error) {
	conn, err := jsonrpc.Dial("tcp", l.address)
	return netRPCConnection{conn}, err
}

func (c netRPCConnection) caller(l *load) (caller, error) {
	if l.contract != "say581" {
		return nil, fmt.Errorf("the net/rpc client has no contract %s", l.contract)
	}
	var request pb.BenchmarkMessage
	if err := proto.Unmarshal(l.message, &request); err != nil {
		return nil, err
	}
	return func() error {
		var reply pb.BenchmarkMessage
		err := c.Call("Hello.Say", &request, &reply)
		if err == nil {
			err = checkSaid(&reply, &request)
		}
		return err
	}, nil
}
