// Command peer has the servers of rpcx and of net/rpc, and the clients of rpcx, net/rpc and grpc-go, for
// `polyrpc bench suite`.
//
//	peer serve rpcx --listen 127.0.0.1:8972
//	peer call rpcx --address 127.0.0.1:8972 --contract say581 --message FILE --callers 100 --connections 10
//
// A server prints "listening ADDRESS". A client prints "begin" when its measurement begins, and a line of JSON at its end.
package main

import (
	"fmt"
	"log"
	"os"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) < 3 {
		log.Fatal("usage: peer serve rpcx|net-rpc|net-rpc-json … | peer call rpcx|net-rpc|net-rpc-json|grpc …")
	}
	action, system, arguments := os.Args[1], os.Args[2], os.Args[3:]
	var err error
	switch action + " " + system {
	case "serve rpcx":
		err = serveRpcx(arguments)
	case "serve net-rpc":
		err = serveNetRPC(arguments, false)
	case "serve net-rpc-json":
		err = serveNetRPC(arguments, true)
	case "call rpcx":
		err = call(arguments, connectRpcx)
	case "call net-rpc":
		err = call(arguments, connectNetRPC)
	case "call net-rpc-json":
		err = call(arguments, connectNetRPCJSON)
	case "call grpc":
		err = call(arguments, connectGRPC)
	default:
		err = fmt.Errorf("there is no %s %s", action, system)
	}
	if err != nil {
		log.Fatal(err)
	}
}
