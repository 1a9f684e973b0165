package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/smallnest/rpcx/client"
	"github.com/smallnest/rpcx/codec"
	"github.com/smallnest/rpcx/protocol"
	"github.com/smallnest/rpcx/share"

	"github.com/polyrpc/polyrpc/interop/go/arith"
)

var cases = []testCase{
	{"protobuf", protobuf},
	{"json", arithmetic(protocol.JSON)},
	{"msgpack", arithmetic(protocol.MsgPack)},
	{"raw", rawBytes},
	{"raw_1mib", rawMebibyte},
	{"rich_json", rich(protocol.JSON)},
	{"rich_msgpack", rich(protocol.MsgPack)},
	{"gzip", gzip},
	{"gzip_small", gzipSmall},
	{"metadata", metadata},
	{"auth_ok", authOk},
	{"auth_refused", authRefused},
	{"oneway", oneway},
	{"heartbeat", heartbeat},
	{"error", handlerError},
	{"div_by_zero", divByZero},
	{"panic", handlerPanic},
	{"unknown_service", unknownService},
	{"unknown_method", unknownMethod},
	{"unknown_codec", unknownCodec},
	{"unknown_compression", unknownCompression},
	{"push", push},
	{"function", function},
	{"server_timeout", serverTimeout},
	{"deadline_ends_handler", deadlineEndsHandler},
	{"caller_gives_up", callerGivesUp},
	{"overtaking", overtaking},
	{"concurrent_100", concurrent},
	{"http_connect", httpConnect},
	{"websocket", webSocket},
	{"unix_socket", unixSocket},
	{"unix_stream", unixStream},
	{"stream", stream},
	{"stream_1mib", streamMebibyte},
	{"stream_refused", streamRefused},
	{"send_file", sendFile},
	{"download_file", downloadFile},
	{"download_missing", downloadMissing},
	{"reflection", reflectOne},
	{"reflection_all", reflectAll},
	{"reflection_unknown", reflectUnknown},
}

func protobuf(server peer) error {
	return with(server.addr, options(protocol.ProtoBuffer), func(s *session) error {
		var reply arith.PBReply
		if _, err := s.invoke("PBArith", "Mul", nil, &arith.PBArgs{A: 7, B: 8}, &reply); err != nil {
			return err
		}
		return equal("C", reply.C, 56)
	})
}

// arithmetic calls the plain methods of Arith in one serialize type.
func arithmetic(serialize protocol.SerializeType) func(peer) error {
	return func(server peer) error {
		return with(server.addr, options(serialize), func(s *session) error {
			for method, want := range map[string]int{"Mul": 54, "Add": 21, "Div": 6} {
				var reply arith.Reply
				if _, err := s.invoke("Arith", method, nil, &arith.Args{A: 18, B: 3}, &reply); err != nil {
					return fmt.Errorf("%s: %w", method, err)
				}
				if err := equal(method, reply.C, want); err != nil {
					return err
				}
			}
			return s.mul("Arith", -7, 8)
		})
	}
}

func rawBytes(server peer) error {
	return echoRaw(server, []byte("raw \x00\xff bytes"))
}

func rawMebibyte(server peer) error {
	body := make([]byte, 1<<20)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range body {
		body[i] = byte(random.Uint32())
	}
	return echoRaw(server, body)
}

func echoRaw(server peer, body []byte) error {
	return with(server.addr, options(protocol.SerializeNone), func(s *session) error {
		var reply []byte
		if _, err := s.invoke("Echo", "Raw", nil, body, &reply); err != nil {
			return err
		}
		if !bytes.Equal(reply, body) {
			return fmt.Errorf("%d bytes came back changed (%d)", len(body), len(reply))
		}
		return nil
	})
}

func rich(serialize protocol.SerializeType) func(peer) error {
	return func(server peer) error {
		return with(server.addr, options(serialize), func(s *session) error {
			want := arith.RichSample()
			var reply arith.Rich
			if _, err := s.invoke("Echo", "Rich", nil, &want, &reply); err != nil {
				return err
			}
			reply.T = reply.T.UTC() // MessagePack's timestamp carries no zone
			if !reflect.DeepEqual(reply, want) {
				return fmt.Errorf("got %+v, want %+v", reply, want)
			}
			return nil
		})
	}
}

// gzip sends a string that compresses; a reply of more than 1024 bytes must come back compressed too.
func gzip(server peer) error {
	return echoCompressed(server, strings.Repeat("abcdefgh", 1000), 1)
}

// gzipSmall stays under the 1024 bytes from which rpcx compresses.
func gzipSmall(server peer) error {
	return echoCompressed(server, "small", 0)
}

func echoCompressed(server peer, text string, compressedReplies int64) error {
	option := options(protocol.JSON)
	option.CompressType = protocol.Gzip
	return with(server.addr, option, func(s *session) error {
		var reply string
		if _, err := s.invoke("Echo", "Str", nil, &text, &reply); err != nil {
			return err
		}
		if reply != text {
			return fmt.Errorf("%d characters came back changed (%d)", len(text), len(reply))
		}
		return equal("compressed replies", s.seen.compressed.Load(), compressedReplies)
	})
}

func metadata(server peer) error {
	return with(server.addr, options(protocol.MsgPack), func(s *session) error {
		var reply arith.Reply
		response, err := s.invoke("Arith", "Meta", map[string]string{"k1": "v1"}, &arith.Args{A: 7, B: 8}, &reply)
		if err != nil {
			return err
		}
		return errors.Join(equal("C", reply.C, 56), equal("metadata echo", response["echo"], "v1"))
	})
}

func authOk(server peer) error {
	if server.authAddr == "" {
		return fmt.Errorf("%w --auth-addr", errSkipped)
	}
	calls := xClient("Arith", server.authAddr)
	defer calls.Close()
	calls.Auth(arith.Token)
	for range 2 {
		var reply arith.Reply
		if err := calls.Call(context.Background(), "Mul", &arith.Args{A: 7, B: 8}, &reply); err != nil {
			return err
		}
		if err := equal("C", reply.C, 56); err != nil {
			return err
		}
	}
	return nil
}

// authRefused: the call fails with a text, then the server closes the connection.
func authRefused(server peer) error {
	if server.authAddr == "" {
		return fmt.Errorf("%w --auth-addr", errSkipped)
	}
	return with(server.authAddr, options(protocol.MsgPack), func(s *session) error {
		messages := make(chan *protocol.Message, 1)
		s.RegisterServerMessageChan(messages)
		var reply arith.Reply
		_, err := s.invoke("Arith", "Mul", map[string]string{share.AuthKey: "bearer wrong"}, &arith.Args{A: 7, B: 8}, &reply)
		if err := serviceError(err, ""); err != nil {
			return err
		}
		return closedByPeer(messages)
	})
}

// xClient is rpcx's client with discovery, which supports tokens and deadlines.
func xClient(path, addr string) client.XClient {
	discovery, _ := client.NewPeer2PeerDiscovery("tcp@"+addr, "") // never fails
	return client.NewXClient(path, client.Failfast, client.RandomSelect, discovery, options(client.DefaultOption.SerializeType))
}

// oneway gets no response; only the next ordinary call does.
func oneway(server peer) error {
	return with(server.addr, options(protocol.MsgPack), func(s *session) error {
		for _, method := range []string{"Mul", "Error", "Nope"} {
			sent := s.Go(context.Background(), "Arith", method, &arith.Args{A: 7, B: 8}, nil, make(chan *client.Call, 1))
			if err := (<-sent.Done).Error; err != nil {
				return fmt.Errorf("one-way %s: %w", method, err)
			}
		}
		if err := s.mul("Arith", 7, 8); err != nil {
			return err
		}
		return equal("frames from the server", s.seen.frames.Load(), 1)
	})
}

func heartbeat(server peer) error {
	option := options(protocol.MsgPack)
	option.Heartbeat = true
	option.HeartbeatInterval = 20 * time.Millisecond
	option.MaxWaitForHeartbeat = callLimit
	return with(server.addr, option, func(s *session) error {
		for n := range 5 {
			select {
			case <-s.seen.heartbeats:
			case <-time.After(callLimit):
				return fmt.Errorf("heartbeat %d was not answered", n+1)
			}
		}
		return s.mul("Arith", 7, 8)
	})
}

func handlerError(server peer) error {
	return failing(server, "Arith", "Error", arith.Args{A: 7, B: 8}, "boom")
}

func divByZero(server peer) error {
	return failing(server, "Arith", "Div", arith.Args{A: 7}, "")
}

func handlerPanic(server peer) error {
	return failing(server, "Arith", "Panic", arith.Args{A: 7, B: 8}, "")
}

func unknownService(server peer) error {
	return failing(server, "NoSuch", "Mul", arith.Args{}, "rpcx: can't find service NoSuch")
}

func unknownMethod(server peer) error {
	return failing(server, "Arith", "Nope", arith.Args{}, "rpcx: can't find method Nope")
}

// failing makes a call that must fail with the text, if one is given, and keep the connection usable.
func failing(server peer, path, method string, args arith.Args, text string) error {
	return with(server.addr, options(protocol.MsgPack), func(s *session) error {
		var reply arith.Reply
		_, err := s.invoke(path, method, nil, &args, &reply)
		return errors.Join(serviceError(err, text), s.mul("Arith", 7, 8))
	})
}

// unknownCodec uses a serialize type known only to this client.
func unknownCodec(server peer) error {
	const private = protocol.SerializeType(9)
	share.RegisterCodec(private, &codec.JSONCodec{})
	return with(server.addr, options(private), func(s *session) error {
		var reply arith.Reply
		_, err := s.invoke("Arith", "Mul", nil, &arith.Args{A: 7, B: 8}, &reply)
		return serviceError(err, "can not find codec for 9")
	})
}

// unknownCompression uses a compression known only to this client: rpcx closes the connection.
func unknownCompression(server peer) error {
	const private = protocol.CompressType(5)
	protocol.Compressors[private] = &protocol.GzipCompressor{}
	option := options(protocol.JSON)
	option.CompressType = private
	return with(server.addr, option, func(s *session) error {
		messages := make(chan *protocol.Message, 1)
		s.RegisterServerMessageChan(messages)
		text, reply := strings.Repeat("abcdefgh", 1000), ""
		if _, err := s.invoke("Echo", "Str", nil, &text, &reply); err == nil {
			return errors.New("the call succeeded")
		}
		return closedByPeer(messages)
	})
}

func push(server peer) error {
	return with(server.addr, options(protocol.MsgPack), func(s *session) error {
		messages := make(chan *protocol.Message, 1)
		s.RegisterServerMessageChan(messages)
		var reply arith.Reply
		if _, err := s.invoke("Arith", "Push", nil, &arith.Args{A: 7, B: 8}, &reply); err != nil {
			return err
		}
		if err := equal("C", reply.C, 1); err != nil {
			return err
		}
		select {
		case message := <-messages:
			return errors.Join(
				equal("path", message.ServicePath, "push_path"),
				equal("method", message.ServiceMethod, "push_method"),
				equal("metadata pk", message.Metadata["pk"], "pv"),
				equal("payload", string(message.Payload), "abcde"),
			)
		case <-time.After(callLimit):
			return errors.New("no message came")
		}
	})
}

func function(server peer) error {
	return with(server.addr, options(protocol.MsgPack), func(s *session) error {
		var reply arith.Reply
		if _, err := s.invoke("a.fake.service", "mul", nil, &arith.Args{A: 7, B: 8}, &reply); err != nil {
			return err
		}
		return equal("C", reply.C, 56)
	})
}

// serverTimeout sends the deadline, as rpcx's XClient does for a context with one.
func serverTimeout(server peer) error {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	calls := xClient("Arith", server.addr)
	defer calls.Close()
	var reply arith.Reply
	if err := calls.Call(ctx, "Mul", &arith.Args{A: 7, B: 8}, &reply); err != nil {
		return err
	}
	return equal("C", reply.C, 56)
}

// deadlineEndsHandler lets the server's deadline pass while the caller still waits: the answer is an error.
func deadlineEndsHandler(server peer) error {
	return with(server.addr, options(protocol.MsgPack), func(s *session) error {
		var reply arith.Reply
		deadline := map[string]string{share.ServerTimeout: "50"}
		// Without the deadline it would sleep until long after the limit of the call.
		pause := 2 * callLimit
		_, err := s.invoke("Arith", "Sleep", deadline, &arith.Args{A: int(pause.Milliseconds())}, &reply)
		if err := serviceError(err, ""); err != nil {
			return err
		}
		return s.mul("Arith", 7, 8)
	})
}

// callerGivesUp cancels a call; its late response must not disturb the connection.
func callerGivesUp(server peer) error {
	return withPauses(100, 5000, func(pause int) error {
		return with(server.addr, options(protocol.MsgPack), func(s *session) error {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
			defer cancel()
			var reply arith.Reply
			err := s.Call(ctx, "Arith", "Sleep", &arith.Args{A: pause}, &reply)
			if err == nil {
				return errEarly
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("want the deadline of the context, got %v", err)
			}
			if _, err := s.invoke("Arith", "Sleep", nil, &arith.Args{A: pause + 50}, &reply); err != nil {
				return err
			}
			return equal("C", reply.C, pause+50)
		})
	})
}

// overtaking: a quick call on the same connection is answered while a slow one still runs.
func overtaking(server peer) error {
	return withPauses(500, 5000, func(pause int) error {
		return with(server.addr, options(protocol.MsgPack), func(s *session) error {
			var late arith.Reply
			slow := s.Go(context.Background(), "Arith", "Sleep", &arith.Args{A: pause}, &late, make(chan *client.Call, 1))
			if err := s.mul("Arith", 7, 8); err != nil {
				return err
			}
			select {
			case <-slow.Done:
				return errEarly
			default:
			}
			call := <-slow.Done
			return errors.Join(call.Error, equal("slow call", late.C, pause))
		})
	})
}

// errEarly: a slow call has ended before what should have been quicker.
var errEarly = errors.New("the slow call ended first")

// withPauses runs a case whose slow call takes so many milliseconds. On a busy machine the first, short ones may be over too
// early: then it takes the second.
func withPauses(short, long int, run func(pause int) error) error {
	err := run(short)
	if errors.Is(err, errEarly) {
		err = run(long)
	}
	return err
}

// concurrent runs 100 callers, ten calls each, over one connection.
func concurrent(server peer) error {
	return with(server.addr, options(protocol.MsgPack), func(s *session) error {
		var callers sync.WaitGroup
		failures := make(chan error, 100)
		for caller := range 100 {
			callers.Go(func() {
				for n := range 10 {
					if err := s.mul("Arith", caller, n); err != nil {
						failures <- err
						return
					}
				}
			})
		}
		callers.Wait()
		close(failures)
		return <-failures
	})
}

func httpConnect(server peer) error {
	s, err := dial("http", server.httpAddr, options(protocol.JSON))
	if err != nil {
		return err
	}
	defer s.Close()
	return s.mul("Arith", 7, 8)
}
