package main

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/smallnest/rpcx/server"
	"github.com/smallnest/rpcx/share"

	"github.com/polyrpc/polyrpc/interop/go/arith"
)

// Arith is the calculator of the rpcx examples, with the failures that a peer must handle.
type Arith struct {
	server *server.Server
}

func (*Arith) Mul(_ context.Context, args *arith.Args, reply *arith.Reply) error {
	reply.C = args.A * args.B
	return nil
}

func (*Arith) Add(_ context.Context, args *arith.Args, reply *arith.Reply) error {
	reply.C = args.A + args.B
	return nil
}

func (*Arith) Div(_ context.Context, args *arith.Args, reply *arith.Reply) error {
	if args.B == 0 {
		return errors.New("divide by zero")
	}
	reply.C = args.A / args.B
	return nil
}

func (*Arith) Error(_ context.Context, _ *arith.Args, _ *arith.Reply) error {
	return errors.New("boom")
}

func (*Arith) Panic(_ context.Context, _ *arith.Args, _ *arith.Reply) error {
	panic("panic as asked")
}

// Meta replies like Mul and returns the request's k1 as the response's echo.
func (arithmetic *Arith) Meta(ctx context.Context, args *arith.Args, reply *arith.Reply) error {
	request, _ := ctx.Value(share.ReqMetaDataKey).(map[string]string)
	response, ok := ctx.Value(share.ResMetaDataKey).(map[string]string)
	if !ok {
		return errors.New("no response metadata in the context")
	}
	response["echo"] = request["k1"]
	return arithmetic.Mul(ctx, args, reply)
}

// Push sends one message to the caller's connection before it replies.
func (arithmetic *Arith) Push(ctx context.Context, _ *arith.Args, reply *arith.Reply) error {
	conn, ok := ctx.Value(server.RemoteConnContextKey).(net.Conn)
	if !ok {
		return errors.New("no connection to push to")
	}
	reply.C = 1
	return arithmetic.server.SendMessage(conn, "push_path", "push_method", map[string]string{"pk": "pv"}, []byte("abcde"))
}

// Sleep waits A milliseconds, or until the caller's deadline, and returns A.
func (*Arith) Sleep(ctx context.Context, args *arith.Args, reply *arith.Reply) error {
	select {
	case <-time.After(time.Duration(args.A) * time.Millisecond):
		reply.C = args.A
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// PBArith is Arith in protobuf.
type PBArith struct{}

func (PBArith) Mul(_ context.Context, args *arith.PBArgs, reply *arith.PBReply) error {
	reply.C = args.A * args.B
	return nil
}

// Echo returns its argument.
type Echo struct{}

func (Echo) Raw(_ context.Context, args *[]byte, reply *[]byte) error {
	*reply = *args
	return nil
}

func (Echo) Str(_ context.Context, args *string, reply *string) error {
	*reply = *args
	return nil
}

func (Echo) Rich(_ context.Context, args *arith.Rich, reply *arith.Rich) error {
	*reply = *args
	return nil
}

// mul is registered as a bare function, without a type.
func mul(_ context.Context, args *arith.Args, reply *arith.Reply) error {
	reply.C = args.A * args.B
	return nil
}
