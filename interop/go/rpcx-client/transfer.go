package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/smallnest/rpcx/client"
	"github.com/smallnest/rpcx/protocol"
	"github.com/smallnest/rpcx/share"
)

// withX runs a case with the client of one service, which rpcx requires for streams and files.
func withX(server peer, service string, run func(context.Context, client.XClient) error) error {
	return withXOf("tcp@"+server.addr, service, run)
}

func withXOf(address, service string, run func(context.Context, client.XClient) error) error {
	discovery, err := client.NewPeer2PeerDiscovery(address, "")
	if err != nil {
		return err
	}
	x := client.NewXClient(service, client.Failtry, client.RandomSelect, discovery, options(protocol.MsgPack))
	defer x.Close()
	limited, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	return run(limited, x)
}

func stream(server peer) error {
	return withX(server, share.StreamServiceName, streamsHello)
}

func streamsHello(ctx context.Context, x client.XClient) error {
	conn, err := x.Stream(ctx, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("hello")); err != nil {
		return err
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return err
	}
	return equal("answer", string(answer), "echo hello")
}

// streamMebibyte sends and receives concurrently, as fast as the peer reads.
func streamMebibyte(server peer) error {
	return withX(server, share.StreamServiceName, func(ctx context.Context, x client.XClient) error {
		conn, err := x.Stream(ctx, map[string]string{"echo": "yes"})
		if err != nil {
			return err
		}
		defer conn.Close()
		content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
		failed := make(chan error, 1)
		go func() {
			_, err := conn.Write(content)
			failed <- err
		}()
		echoed := make([]byte, len(content))
		if _, err := io.ReadFull(conn, echoed); err != nil {
			return err
		}
		if !bytes.Equal(echoed, content) {
			return errors.New("the bytes came back changed")
		}
		return <-failed
	})
}

func streamRefused(server peer) error {
	return withX(server, share.StreamServiceName, func(ctx context.Context, x client.XClient) error {
		_, err := x.Stream(ctx, map[string]string{"refuse": "yes"})
		if err == nil || !strings.Contains(err.Error(), "server refused the connection") {
			return fmt.Errorf("want a refusal, got %v", err)
		}
		return nil
	})
}

// sendFile sends a file and fetches it again, since rpcx's client gets no confirmation.
func sendFile(server peer) error {
	folder, err := os.MkdirTemp("", "rpcx-client")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "content.bin")
	content := bytes.Repeat([]byte{1, 2, 3, 0, 255}, 50_000)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return err
	}
	return withX(server, share.SendFileServiceName, func(ctx context.Context, x client.XClient) error {
		if err := x.SendFile(ctx, path, 0, map[string]string{"k": "v"}); err != nil {
			return err
		}
		for ctx.Err() == nil {
			var kept bytes.Buffer
			if err := x.DownloadFile(ctx, "last", &kept, nil); err != nil {
				return err
			}
			if bytes.Equal(kept.Bytes(), content) {
				return nil
			}
		}
		return errors.New("the file was not kept as it was sent")
	})
}

func downloadFile(server peer) error {
	return withX(server, share.SendFileServiceName, func(ctx context.Context, x client.XClient) error {
		var content bytes.Buffer
		if err := x.DownloadFile(ctx, "dl.txt", &content, nil); err != nil {
			return err
		}
		return equal("content", content.String(), "file:dl.txt")
	})
}

func downloadMissing(server peer) error {
	return withX(server, share.SendFileServiceName, func(ctx context.Context, x client.XClient) error {
		var content bytes.Buffer
		err := x.DownloadFile(ctx, "missing", &content, nil)
		if err == nil || !strings.Contains(err.Error(), "no such file") {
			return fmt.Errorf("want a failure, got %v and %d bytes", err, content.Len())
		}
		return nil
	})
}

func reflectOne(server peer) error {
	return reflects(server, "GetService", "Arith", "type (s *Arith) Mul(ctx context.Context, arg *", "type Arith struct{}")
}

func reflectAll(server peer) error {
	return reflects(server, "GetServices", "", "type (s *Arith) Mul(", "type (s *Echo) Raw(")
}

func reflects(server peer, method, argument string, wanted ...string) error {
	return with(server.addr, options(protocol.JSON), func(s *session) error {
		var text string
		if _, err := s.invoke("Reflection", method, nil, argument, &text); err != nil {
			return err
		}
		for _, words := range wanted {
			if !strings.Contains(text, words) {
				return fmt.Errorf("no %q in %q", words, text)
			}
		}
		return nil
	})
}

func reflectUnknown(server peer) error {
	return with(server.addr, options(protocol.JSON), func(s *session) error {
		var text string
		_, err := s.invoke("Reflection", "GetService", nil, "NoSuch", &text)
		return serviceError(err, "not found service NoSuch")
	})
}

// webSocket makes many calls with all frame sizes.
func webSocket(server peer) error {
	return over("ws", server.addr)
}

func unixSocket(server peer) error {
	if server.unixAddr == "" {
		return fmt.Errorf("%w --unix-addr", errSkipped)
	}
	return over("unix", server.unixAddr)
}

func over(network, addr string) error {
	s, err := dial(network, addr, options(protocol.JSON))
	if err != nil {
		return err
	}
	defer s.Close()
	for n := range 20 {
		if err := s.mul("Arith", n, 8); err != nil {
			return err
		}
	}
	for _, length := range []int{0, 100, 200, 65_536, 1 << 20} {
		text := strings.Repeat("x", length)
		var echoed string
		if _, err := s.invoke("Echo", "Str", nil, text, &echoed); err != nil {
			return fmt.Errorf("%d letters: %w", length, err)
		}
		if echoed != text {
			return fmt.Errorf("%d letters came back changed", length)
		}
	}
	return nil
}

// unixStream requests over a Unix socket and streams over TCP, the only transport of rpcx's client.
func unixStream(server peer) error {
	if server.unixAddr == "" {
		return fmt.Errorf("%w --unix-addr", errSkipped)
	}
	return withXOf("unix@"+server.unixAddr, share.StreamServiceName, streamsHello)
}
