package main

import (
	"context"
	"io"
	"log"
	"net"
	"sync"

	"github.com/smallnest/rpcx/server"
	"github.com/smallnest/rpcx/share"
)

// enableTransfers adds streams and files, each on a separate port as in rpcx.
func enableTransfers(s *server.Server) {
	kept := &shelf{}
	s.EnableStreamService("", server.NewStreamService(freeAddress(), serveStream, acceptStream, 100))
	s.EnableFileTransfer("", server.NewFileTransfer(freeAddress(), kept.take, kept.give, 100))
}

func acceptStream(_ context.Context, args *share.StreamServiceArgs) bool {
	_, refuse := args.Meta["refuse"]
	return !refuse
}

// serveStream answers five bytes with "echo " and these or, depending on the metadata, echoes all bytes.
func serveStream(conn net.Conn, args *share.StreamServiceArgs) {
	defer conn.Close()
	if _, echo := args.Meta["echo"]; echo {
		_, _ = io.Copy(conn, conn)
		return
	}
	word := make([]byte, 5)
	if _, err := io.ReadFull(conn, word); err == nil {
		_, _ = conn.Write(append([]byte("echo "), word...))
	}
}

// shelf stores the last received file.
type shelf struct {
	mu   sync.Mutex
	last []byte
}

func (s *shelf) take(conn net.Conn, _ *share.FileTransferArgs) {
	defer conn.Close()
	content, err := io.ReadAll(conn)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = content
}

func (s *shelf) give(conn net.Conn, args *share.DownloadFileArgs) {
	defer conn.Close()
	content := []byte("file:" + args.FileName)
	if args.FileName == "last" {
		s.mu.Lock()
		content = s.last
		s.mu.Unlock()
	}
	_, _ = conn.Write(content)
}

// freeAddress returns an unused address: rpcx sends its clients the configured address, which must have a
// port.
func freeAddress() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}
