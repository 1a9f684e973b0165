// Command echo is the service of proto/names.proto on the real rpcx and on Go's own net/rpc, and a caller of each.
//
//	echo serve
//	echo CALLER ADDR
//
// The server prints `listening-net-rpc ADDR`, `listening-json-rpc ADDR` and, last, `listening ADDR` (rpcx), and exits when its
// standard input closes. CALLER is `rpcx-msgpack`, `rpcx-json`, `net-rpc` or `json-rpc`; it prints a line per case, as every
// client does.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"slices"
	"strings"
	"time"

	rpcxclient "github.com/smallnest/rpcx/client"
	rpcxlog "github.com/smallnest/rpcx/log"
	"github.com/smallnest/rpcx/protocol"
	rpcxserver "github.com/smallnest/rpcx/server"
)

// Text is the request. The names of its fields are those of names.proto, except in gob, which has Go's.
type Text struct {
	Text   string `json:"text" msgpack:"text"`
	Copies int32  `json:"copies" msgpack:"copies"`
}

// Copies is the response.
type Copies struct {
	Texts []string `json:"texts" msgpack:"texts"`
}

const (
	serviceName = "example.EchoService"
	failing     = "fail"
	failure     = "failed as asked"
	limit       = 10 * time.Second
)

func answer(request *Text, response *Copies) error {
	if strings.HasPrefix(request.Text, failing) {
		return errors.New(failure)
	}
	response.Texts = slices.Repeat([]string{request.Text}, int(request.Copies))
	return nil
}

type overRPCX struct{}

// Echo returns the text as often as the request says.
func (overRPCX) Echo(_ context.Context, request *Text, response *Copies) error {
	return answer(request, response)
}

// OverNetRPC is exported, as net/rpc demands.
type OverNetRPC struct{}

// Echo returns the text as often as the request says.
func (OverNetRPC) Echo(request *Text, response *Copies) error {
	return answer(request, response)
}

func main() {
	rpcxlog.SetDummyLogger()
	switch {
	case len(os.Args) == 2 && os.Args[1] == "serve":
		serve()
	case len(os.Args) == 3 && callers[os.Args[1]] != nil:
		call(callers[os.Args[1]], os.Args[2])
	default:
		fmt.Fprintln(os.Stderr, "usage: echo serve | echo rpcx-msgpack|rpcx-json|net-rpc|json-rpc ADDR")
		os.Exit(2)
	}
}

func serve() {
	plain := rpc.NewServer()
	if err := plain.RegisterName(serviceName, OverNetRPC{}); err != nil {
		log.Fatal(err)
	}
	fmt.Println("listening-net-rpc", accept(func(conn net.Conn) { plain.ServeConn(conn) }))
	fmt.Println("listening-json-rpc", accept(func(conn net.Conn) { plain.ServeCodec(jsonrpc.NewServerCodec(conn)) }))
	server := rpcxserver.NewServer()
	if err := server.RegisterName(serviceName, overRPCX{}, ""); err != nil {
		log.Fatal(err)
	}
	listener := listen()
	go func() { log.Fatal(server.ServeListener("tcp", listener)) }()
	fmt.Println("listening", listener.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func accept(handle func(net.Conn)) net.Addr {
	listener := listen()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				log.Fatal(err)
			}
			go handle(conn)
		}
	}()
	return listener.Addr()
}

func listen() net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	return listener
}

// caller makes one call on a connection of its own.
type caller func(addr string, request *Text, response *Copies) error

var callers = map[string]caller{
	"rpcx-msgpack": callRPCX(protocol.MsgPack),
	"rpcx-json":    callRPCX(protocol.JSON),
	"net-rpc":      callNetRPC(rpc.Dial),
	"json-rpc":     callNetRPC(jsonrpc.Dial),
}

func callRPCX(serialize protocol.SerializeType) caller {
	return func(addr string, request *Text, response *Copies) error {
		option := rpcxclient.DefaultOption
		option.SerializeType = serialize
		client := rpcxclient.NewClient(option)
		if err := client.Connect("tcp", addr); err != nil {
			return err
		}
		defer client.Close()
		limited, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		return client.Call(limited, serviceName, "Echo", request, response)
	}
}

func callNetRPC(dial func(network, addr string) (*rpc.Client, error)) caller {
	return func(addr string, request *Text, response *Copies) error {
		client, err := dial("tcp", addr)
		if err != nil {
			return err
		}
		defer client.Close()
		select {
		case ended := <-client.Go(serviceName+".Echo", request, response, nil).Done:
			return ended.Error
		case <-time.After(limit):
			return errors.New("no answer")
		}
	}
}

func call(one caller, addr string) {
	passed := true
	report := func(name string, err error) {
		if err != nil {
			passed = false
			fmt.Printf("FAIL %s: %v\n", name, err)
			return
		}
		fmt.Println("ok  ", name)
	}
	var got Copies
	err := one(addr, &Text{Text: "héllo", Copies: 2}, &got)
	if err == nil && !slices.Equal(got.Texts, []string{"héllo", "héllo"}) {
		err = fmt.Errorf("got %q", got.Texts)
	}
	report("echo", err)
	switch err = one(addr, &Text{Text: failing, Copies: 1}, &Copies{}); {
	case err == nil:
		err = errors.New("the call succeeded")
	case strings.Contains(err.Error(), failure):
		err = nil
	}
	report("failure", err)
	if !passed {
		os.Exit(1)
	}
}
