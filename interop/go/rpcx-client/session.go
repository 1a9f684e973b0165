package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/smallnest/rpcx/client"
	"github.com/smallnest/rpcx/protocol"
	"github.com/smallnest/rpcx/share"

	"github.com/polyrpc/polyrpc/interop/go/arith"
	"github.com/polyrpc/polyrpc/interop/go/udp"
)

// callLimit is the timeout of a call.
const callLimit = 30 * time.Second

// secured is the TLS configuration of connections; nil: no TLS.
var secured *tls.Config

// network is the transport of connections.
var network string

func init() {
	client.ConnFactories["quic"] = func(c *client.Client, _, address string) (net.Conn, error) {
		return udp.DialQUIC(address, secured)
	}
}

// session is one connection of the real client that observes every received frame.
type session struct {
	*client.Client
	seen *observer
}

// observer is an rpcx plugin that records what the client decodes.
type observer struct {
	frames     atomic.Int64
	compressed atomic.Int64
	heartbeats chan struct{}
}

// ClientAfterDecode is called by rpcx for each frame it has read.
func (o *observer) ClientAfterDecode(frame *protocol.Message) error {
	o.frames.Add(1)
	if frame.CompressType() != protocol.None {
		o.compressed.Add(1)
	}
	if frame.IsHeartbeat() {
		select {
		case o.heartbeats <- struct{}{}:
		default:
		}
	}
	return nil
}

// options are rpcx's defaults with one serialize type.
func options(serialize protocol.SerializeType) client.Option {
	option := client.DefaultOption
	option.SerializeType = serialize
	// The default of a second is short for a handshake on a busy machine.
	option.ConnectTimeout = callLimit
	option.TLSConfig = secured
	option.Block = udp.Block()
	return option
}

func dial(network, addr string, option client.Option) (*session, error) {
	s := &session{
		Client: client.NewClient(option),
		seen:   &observer{heartbeats: make(chan struct{}, 64)},
	}
	s.Plugins = client.NewPluginContainer()
	s.Plugins.Add(s.seen)
	if err := s.Connect(network, addr); err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return s, nil
}

// with opens a connection for a case and closes it afterwards.
func with(addr string, option client.Option, run func(*session) error) error {
	s, err := dial(network, addr, option)
	if err != nil {
		return err
	}
	defer s.Close()
	return run(s)
}

// invoke calls a method with the given request metadata and returns the metadata of the reply.
func (s *session) invoke(path, method string, metadata map[string]string, args, reply any) (map[string]string, error) {
	limited, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	response := map[string]string{}
	ctx := context.WithValue(limited, share.ReqMetaDataKey, metadata)
	ctx = context.WithValue(ctx, share.ResMetaDataKey, response)
	err := s.Call(ctx, path, method, args, reply)
	return response, err
}

// mul is a valid call that shows that a connection works.
func (s *session) mul(path string, a, b int) error {
	var reply arith.Reply
	if _, err := s.invoke(path, "Mul", nil, &arith.Args{A: a, B: b}, &reply); err != nil {
		return fmt.Errorf("%s.Mul: %w", path, err)
	}
	return equal(path+".Mul", reply.C, a*b)
}

// closedByPeer waits for the message that rpcx itself creates when a connection ends.
func closedByPeer(messages <-chan *protocol.Message) error {
	select {
	case message := <-messages:
		if message.MessageStatusType() != protocol.Error {
			return fmt.Errorf("a message instead of the end of the connection: %s.%s", message.ServicePath, message.ServiceMethod)
		}
		return nil
	case <-time.After(callLimit):
		return errors.New("the connection stayed open")
	}
}

// serviceError checks that a call failed with a text sent by the service, not with a fault of the connection.
func serviceError(err error, want string) error {
	if err == nil {
		return errors.New("the call succeeded")
	}
	var fromService client.ServiceError
	if !errors.As(err, &fromService) {
		return fmt.Errorf("want an error of the service, got %T: %w", err, err)
	}
	if err.Error() == "" {
		return errors.New("the error has no text")
	}
	if want != "" {
		return equal("error text", err.Error(), want)
	}
	return nil
}

func equal[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s: got %v, want %v", what, got, want)
	}
	return nil
}
