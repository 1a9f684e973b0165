// Command server is Go's own net/rpc: in gob, over TCP and behind HTTP, in JSON, and in the MessagePack of the rpcx of
// 2016.
//
// It prints `listening ADDR`, `listening-json ADDR`, `listening-msgpack ADDR` and, last, `listening-http ADDR`. It ends
// when its standard input closes.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"strings"
	"time"

	msgpackrpc "github.com/hashicorp/net-rpc-msgpackrpc/v2"

	"github.com/polyrpc/polyrpc/interop/net_rpc/shapes"
)

// Arith is the service of the example of Go's net/rpc.
type Arith struct{}

// Mul returns A * B.
func (Arith) Mul(args *shapes.Args, reply *shapes.Reply) error {
	reply.C = args.A * args.B
	return nil
}

// Error always fails.
func (Arith) Error(*shapes.Args, *shapes.Reply) error {
	return errors.New("boom")
}

// Sleep returns A after this many milliseconds.
func (Arith) Sleep(args *shapes.Args, reply *shapes.Reply) error {
	time.Sleep(time.Duration(args.A) * time.Millisecond)
	reply.C = args.A
	return nil
}

// Shapes echoes shapes.
type Shapes struct{}

// Echo returns the shape with a changed name.
func (Shapes) Echo(shape *shapes.Shape, reply *shapes.Shape) error {
	*reply = *shape
	return nil
}

// Length returns the length of a string.
func (Shapes) Length(text string, reply *int) error {
	*reply = len(text)
	return nil
}

// Order and Bill have nothing in common with the messages of the example.
type Order struct {
	Price, Count int
	Label        string
}

// Bill is the reply to an order.
type Bill struct {
	Total int
	Label string
}

// Named has a method with the name of one of the example.
type Named struct{}

// Mul returns the total price.
func (Named) Mul(order *Order, bill *Bill) error {
	bill.Total, bill.Label = order.Price*order.Count, strings.ToUpper(order.Label)
	return nil
}

func main() {
	shared := flag.Bool("names", false, "serve another service under the name of one of polyrpc serve")
	flag.Parse()
	server := rpc.NewServer()
	register := func() error { return errors.Join(server.Register(Arith{}), server.Register(Shapes{})) }
	if *shared {
		register = func() error { return server.RegisterName("Arith", Named{}) }
	}
	if err := register(); err != nil {
		log.Fatal(err)
	}
	fmt.Println("listening", serve(func(conn net.Conn) { server.ServeConn(conn) }))
	fmt.Println("listening-json", serve(func(conn net.Conn) { server.ServeCodec(jsonrpc.NewServerCodec(conn)) }))
	fmt.Println("listening-msgpack", serve(func(conn net.Conn) { server.ServeCodec(msgpackrpc.NewServerCodec(conn)) }))

	mux := http.NewServeMux()
	mux.Handle(rpc.DefaultRPCPath, server)
	listener := listen()
	go func() { log.Fatal(http.Serve(listener, mux)) }()
	fmt.Println("listening-http", listener.Addr())

	_, _ = io.Copy(io.Discard, os.Stdin)
}

// serve handles each connection in a goroutine; it returns the listening address.
func serve(handle func(net.Conn)) net.Addr {
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
