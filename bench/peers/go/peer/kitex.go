//go:build kitex

package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"sync"

	"github.com/cloudwego/kitex/client"
	"github.com/cloudwego/kitex/pkg/connpool"
	"github.com/cloudwego/kitex/pkg/klog"
	"github.com/cloudwego/kitex/pkg/serviceinfo"
	"github.com/cloudwego/kitex/server"
	"github.com/cloudwego/kitex/transport"
	"google.golang.org/protobuf/proto"

	"github.com/polyrpc/polyrpc/bench/peers/go/pb"
)

func init() {
	// It would log every closed connection.
	klog.SetLevel(klog.LevelFatal)
	systems["serve kitex"] = serveKitex
	systems["call kitex"] = func(arguments []string) error { return call(arguments, connectKitex) }
}

// kitexMessage stands for the code that kitex's generator writes for the arguments and results of a method. It uses
// Google's protobuf for Go, as the other peers do.
type kitexMessage struct{ *pb.BenchmarkMessage }

func (m *kitexMessage) Marshal(out []byte) ([]byte, error) {
	return proto.MarshalOptions{}.MarshalAppend(out, m.BenchmarkMessage)
}

func (m *kitexMessage) Unmarshal(in []byte) error {
	m.BenchmarkMessage = new(pb.BenchmarkMessage)
	return proto.Unmarshal(in, m.BenchmarkMessage)
}

func newKitexMessage() any { return new(kitexMessage) }

// kitexHello describes the service.
var kitexHello = &serviceinfo.ServiceInfo{
	ServiceName:  "Hello",
	PayloadCodec: serviceinfo.Protobuf,
	Methods: map[string]serviceinfo.MethodInfo{
		"Say": serviceinfo.NewMethodInfo(sayKitex, newKitexMessage, newKitexMessage, false),
	},
	Extra: map[string]any{serviceinfo.PackageName: "pb"},
}

func sayKitex(_ context.Context, _, arguments, result any) error {
	reply := new(pb.BenchmarkMessage)
	said(arguments.(*kitexMessage).BenchmarkMessage, reply)
	result.(*kitexMessage).BenchmarkMessage = reply
	return nil
}

func serveKitex(arguments []string) error {
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:0", "where to listen")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	address, err := net.ResolveTCPAddr("tcp", *listen)
	if err != nil {
		return err
	}
	endWithStandardInput()
	s := server.NewServer(server.WithServiceAddr(address))
	if err := s.RegisterService(kitexHello, &Hello{}); err != nil {
		return err
	}
	return s.Run()
}

type kitexConnection struct{ client.Client }

// kitexPool is one client for all callers: its pool has a connection for each call in flight.
var kitexPool struct {
	sync.Once
	client.Client
	err error
}

func connectKitex(l *load) (connection, error) {
	if l.connections != l.callers {
		return nil, fmt.Errorf("kitex's pool has a connection for each of %d callers, not %d", l.callers, l.connections)
	}
	kitexPool.Do(func() {
		kitexPool.Client, kitexPool.err = client.NewClient(kitexHello,
			client.WithDestService("Hello"),
			client.WithHostPorts(l.address),
			client.WithTransportProtocol(transport.Framed),
			client.WithLongConnection(connpool.IdleConfig{MaxIdlePerAddress: l.callers, MaxIdleGlobal: l.callers}))
	})
	return kitexConnection{kitexPool.Client}, kitexPool.err
}

func (c kitexConnection) caller(l *load) (caller, error) {
	if l.contract != "say581" {
		return nil, fmt.Errorf("the kitex client has no contract %s", l.contract)
	}
	request := new(pb.BenchmarkMessage)
	if err := proto.Unmarshal(l.message, request); err != nil {
		return nil, err
	}
	return func() error {
		var reply kitexMessage
		err := c.Call(context.Background(), "Say", &kitexMessage{request}, &reply)
		if err == nil {
			err = checkSaid(reply.BenchmarkMessage, request)
		}
		return err
	}, nil
}
