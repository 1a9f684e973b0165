// Command peer has the servers of rpcx and of net/rpc, and the clients of rpcx, net/rpc and grpc-go, for
// `polyrpc bench suite`.
//
//	peer serve rpcx --listen 127.0.0.1:8972
//	peer call rpcx --address 127.0.0.1:8972 --contract say581 --message FILE --callers 100 --connections 10
//
// Built with the tag kitex, it also has the server and the client of kitex.
//
// A server prints "listening ADDRESS". A client prints "begin" when its measurement begins, and a line of JSON at its end.
package main

import (
	"log"
	"os"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) < 3 {
		log.Fatal("usage: peer serve rpcx|net-rpc|net-rpc-json … | peer call rpcx|net-rpc|net-rpc-json|grpc …")
	}
	name := os.Args[1] + " " + os.Args[2]
	run, isKnown := systems[name]
	if !isKnown {
		log.Fatal("there is no ", name)
	}
	if err := run(os.Args[3:]); err != nil {
		log.Fatal(err)
	}
}

// systems are the servers and clients by their names on the command line.
var systems = map[string]func([]string) error{
	"serve rpcx":         serveRpcx,
	"serve net-rpc":      func(arguments []string) error { return serveNetRPC(arguments, false) },
	"serve net-rpc-json": func(arguments []string) error { return serveNetRPC(arguments, true) },
	"call rpcx":          func(arguments []string) error { return call(arguments, connectRpcx) },
	"call net-rpc":       func(arguments []string) error { return call(arguments, connectNetRPC) },
	"call net-rpc-json":  func(arguments []string) error { return call(arguments, connectNetRPCJSON) },
	"call grpc":          func(arguments []string) error { return call(arguments, connectGRPC) },
}
