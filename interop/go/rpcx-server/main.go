// Command rpcx-server is the real rpcx server, offering what PolyRPC's own `polyrpc serve` offers.
//
// It prints `listening ADDR` once it accepts connections and, since rpcx serves HTTP CONNECT on a
// listener of its own, `listening-http ADDR`. It ends when its standard input closes.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"

	rpcxlog "github.com/smallnest/rpcx/log"
	"github.com/smallnest/rpcx/protocol"
	"github.com/smallnest/rpcx/server"

	"github.com/polyrpc/polyrpc/interop/go/arith"
	"github.com/polyrpc/polyrpc/interop/go/secure"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address to listen on")
	auth := flag.Bool("auth", false, "ask every call for the token")
	files := secure.Flags()
	flag.Parse()
	secured, err := files.Server()
	if err != nil {
		log.Fatal(err)
	}

	// Panics and refused tokens are part of the tests; their stacks would drown the results.
	rpcxlog.SetDummyLogger()

	plain := serve("tcp", *listen, *auth, secured)
	connect := serve("http", "127.0.0.1:0", *auth, secured)
	fmt.Println("listening", plain)
	fmt.Println("listening-http", connect)

	_, _ = io.Copy(io.Discard, os.Stdin)
}

// serve starts a server with every handler and returns the address it listens on.
func serve(network, address string, auth bool, secured *tls.Config) net.Addr {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	if secured != nil {
		listener = tls.NewListener(listener, secured)
	}
	s := server.NewServer()
	if auth {
		s.AuthFunc = checkToken
	}
	if err := register(s); err != nil {
		log.Fatal(err)
	}
	go func() { log.Fatal(s.ServeListener(network, listener)) }()
	return listener.Addr()
}

func register(s *server.Server) error {
	return errors.Join(
		s.RegisterName("Arith", &Arith{server: s}, ""),
		s.RegisterName("PBArith", PBArith{}, ""),
		s.RegisterName("Echo", Echo{}, ""),
		s.RegisterFunctionName("a.fake.service", "mul", mul, ""),
	)
}

func checkToken(_ context.Context, _ *protocol.Message, token string) error {
	if token != arith.Token {
		return errors.New("invalid token")
	}
	return nil
}
