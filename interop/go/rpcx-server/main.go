// Command rpcx-server is the real rpcx server, with the services of `polyrpc-fixtures`.
//
// It prints `listening ADDR` once it accepts connections and, since rpcx serves WebSocket, Unix sockets and HTTP CONNECT
// on separate listeners, `listening-ws ADDR`, `listening-unix PATH` (with --unix) and finally `listening-http ADDR`.
// It exits when its standard input closes.
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
	"net/http"
	"os"
	"time"

	rpcxlog "github.com/smallnest/rpcx/log"
	"github.com/smallnest/rpcx/protocol"
	"github.com/smallnest/rpcx/reflection"
	"github.com/smallnest/rpcx/server"
	"github.com/smallnest/rpcx/share"
	"golang.org/x/net/websocket"

	"github.com/polyrpc/polyrpc/interop/go/arith"
	"github.com/polyrpc/polyrpc/interop/go/secure"
	"github.com/polyrpc/polyrpc/interop/go/udp"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "address to listen on")
	auth := flag.Bool("auth", false, "ask every call for the token")
	unix := flag.String("unix", "", "path of a Unix socket to listen on too")
	shared := flag.Bool("names", false, "serve other services under the names of those of polyrpc serve")
	udp := flag.Bool("udp", false, "listen by KCP and, with -cert, QUIC too")
	files := secure.Flags()
	flag.Parse()
	secured, err := files.Server()
	if err != nil {
		log.Fatal(err)
	}

	// Panics and rejected tokens are part of the tests; their stacks would flood the results.
	rpcxlog.SetDummyLogger()

	if *shared {
		register = registerNames
	}
	plain := serve("tcp", *listen, *auth, secured)
	webSocket := serve("ws", "127.0.0.1:0", *auth, secured)
	connect := serve("http", "127.0.0.1:0", *auth, secured)
	fmt.Println("listening", plain)
	fmt.Println("listening-ws", webSocket)
	if *unix != "" {
		fmt.Println("listening-unix", serve("unix", *unix, *auth, nil))
	}
	if *udp {
		fmt.Println("listening-kcp", serveOver("kcp", nil))
		fmt.Println("listening-quic", serveOver("quic", secured))
	}
	fmt.Println("listening-http", connect)

	_, _ = io.Copy(io.Discard, os.Stdin)
}

// serve starts a server with every handler and returns the address it listens on.
func serve(network, address string, auth bool, secured *tls.Config) net.Addr {
	kind := "tcp"
	if network == "unix" {
		kind = network
	}
	listener, err := net.Listen(kind, address)
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
	go func() { log.Fatal(serveListener(s, network, listener)) }()
	return listener.Addr()
}

// serveOver starts a server over UDP and returns the address it listens on.
func serveOver(network string, secured *tls.Config) net.Addr {
	server.RegisterMakeListener("quic", func(_ *server.Server, address string) (net.Listener, error) {
		return udp.ListenQUIC(address, secured)
	})
	s := server.NewServer(server.WithBlockCrypt(udp.Block()))
	if err := register(s); err != nil {
		log.Fatal(err)
	}
	go func() { log.Fatal(s.Serve(network, "127.0.0.1:0")) }()
	for s.Address() == nil {
		time.Sleep(time.Millisecond)
	}
	return s.Address()
}

// serveListener supports WebSocket in addition to rpcx's own method of this name.
func serveListener(s *server.Server, network string, listener net.Listener) error {
	if network != "ws" {
		return s.ServeListener(network, listener)
	}
	mux := http.NewServeMux()
	mux.Handle(share.DefaultRPCPath, websocket.Handler(s.ServeWS))
	return http.Serve(listener, mux)
}

// register adds the services of every server of this program.
var register = registerAll

func registerAll(s *server.Server) error {
	known := reflection.New()
	s.Plugins.Add(known)
	enableTransfers(s)
	return errors.Join(
		s.RegisterName("Reflection", known, ""),
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
