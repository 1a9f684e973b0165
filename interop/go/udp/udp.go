// Package udp runs rpcx over UDP: over KCP as with its tag `kcp`, and over QUIC.
//
// rpcx v1.9.4 does not build with its tag `quic`: its dependency github.com/smallnest/quick v0.2.0 was written
// for a quic-go with other types. That module is one page long, and reimplemented here for the quic-go that rpcx
// requires.
package udp

import (
	"context"
	"crypto/sha1"
	"crypto/tls"
	"net"

	"github.com/quic-go/quic-go"
	kcp "github.com/xtaci/kcp-go"
	"golang.org/x/crypto/pbkdf2"
)

// Block is the cipher of rpcx's examples.
func Block() kcp.BlockCrypt {
	key := pbkdf2.Key([]byte("rpcx-key"), []byte("rpcx-salt"), 4096, 32, sha1.New)
	block, err := kcp.NewAESBlockCrypt(key)
	if err != nil {
		panic(err)
	}
	return block
}

// protocols are rpcx's default ALPN names (server/quic.go).
var protocols = []string{"rpcx"}

type conn struct {
	*quic.Stream
	under *quic.Conn
}

func (c conn) LocalAddr() net.Addr  { return c.under.LocalAddr() }
func (c conn) RemoteAddr() net.Addr { return c.under.RemoteAddr() }

// DialQUIC connects, and opens the only stream.
func DialQUIC(address string, config *tls.Config) (net.Conn, error) {
	config = config.Clone()
	config.NextProtos = protocols
	under, err := quic.DialAddr(context.Background(), address, config, &quic.Config{})
	if err != nil {
		return nil, err
	}
	stream, err := under.OpenStreamSync(context.Background())
	if err != nil {
		return nil, err
	}
	return conn{stream, under}, nil
}

type listener struct{ *quic.Listener }

// ListenQUIC accepts connections with one stream each.
func ListenQUIC(address string, config *tls.Config) (net.Listener, error) {
	config = config.Clone()
	config.NextProtos = protocols
	under, err := quic.ListenAddr(address, config, nil)
	return listener{under}, err
}

// Accept waits for a connection and for its stream.
func (l listener) Accept() (net.Conn, error) {
	under, err := l.Listener.Accept(context.Background())
	if err != nil {
		return nil, err
	}
	stream, err := under.AcceptStream(context.Background())
	if err != nil {
		return nil, err
	}
	return conn{stream, under}, nil
}
