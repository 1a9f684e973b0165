// Package main is the peer of gRPC's interop tests with compression, which the programs of grpc-go omit: its
// test service with gzip, and its client's cases with every message compressed.
//
//	peer [FLAGS] serve
//	peer [FLAGS] call HOST:PORT
//	peer plain
//	peer names FILE
//	peer echo HOST:PORT FILE
//
// `plain` is `serve` without reflection; `names` serves the services of a FileDescriptorProto in text format (names.go), and
// `echo` calls the first of them (echo.go).
// The flags, for TLS, are those of secure.go.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/reflection"
)

func main() {
	files := secureFlags()
	flag.Parse()
	switch {
	case flag.NArg() == 1 && flag.Arg(0) == "serve":
		serve(files, func(server *grpc.Server) error {
			testgrpc.RegisterTestServiceServer(server, interop.NewTestServer())
			reflection.Register(server)
			return nil
		})
	case flag.NArg() == 1 && flag.Arg(0) == "plain":
		serve(files, func(server *grpc.Server) error {
			testgrpc.RegisterTestServiceServer(server, interop.NewTestServer())
			return nil
		})
	case flag.NArg() == 2 && flag.Arg(0) == "names":
		serve(files, func(server *grpc.Server) error { return registerNames(server, flag.Arg(1)) })
	case flag.NArg() == 3 && flag.Arg(0) == "echo":
		callNames(flag.Arg(1), flag.Arg(2))
	case flag.NArg() == 2 && flag.Arg(0) == "call":
		call(files, flag.Arg(1))
	default:
		fmt.Fprintln(os.Stderr, "usage: peer [FLAGS] serve | peer [FLAGS] call HOST:PORT | peer plain | peer names FILE | peer echo HOST:PORT FILE")
		os.Exit(2)
	}
}

func serve(files files, register func(*grpc.Server) error) {
	var options []grpc.ServerOption
	secured, err := files.server()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if secured != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(secured)))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	server := grpc.NewServer(options...)
	if err := register(server); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("listening", listener.Addr())
	go func() {
		// The peer exits when its standard input closes.
		os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}()
	if err := server.Serve(listener); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type oneCase func(context.Context, testgrpc.TestServiceClient, ...grpc.CallOption)

// A failing case ends the program; the cases printed before it passed.
func call(files files, address string) {
	transport := insecure.NewCredentials()
	secured, err := files.client()
	if err != nil {
		fmt.Println("FAIL connect:", err)
		os.Exit(1)
	}
	if secured != nil {
		transport = credentials.NewTLS(secured)
	}
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(transport),
		grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name)))
	if err != nil {
		fmt.Println("FAIL connect:", err)
		os.Exit(1)
	}
	client := testgrpc.NewTestServiceClient(connection)
	for _, each := range []struct {
		name string
		run  oneCase
	}{
		{"empty_unary", interop.DoEmptyUnaryCall},
		{"large_unary", interop.DoLargeUnaryCall},
		{"client_streaming", interop.DoClientStreaming},
		{"server_streaming", interop.DoServerStreaming},
		{"ping_pong", interop.DoPingPong},
		{"custom_metadata", interop.DoCustomMetadata},
		{"status_code_and_message", interop.DoStatusCodeAndMessage},
		{"special_status_message", interop.DoSpecialStatusMessage},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		each.run(ctx, client)
		cancel()
		fmt.Println("ok  ", each.name)
	}
}
