// Command peer is a real rpcx server that registers itself in a registry, and a real rpcx client that discovers servers
// there.
//
//	peer serve REGISTRY ADDR             prints `listening ADDR` once it is up, and exits with its standard input
//	peer find REGISTRY ADDR [--kill PID] one line per case: `ok   NAME` or `FAIL NAME: why`; exits with 1 if one failed
//
// With --kill the client finally kills the server with SIGKILL, and waits until the registry has removed it.
//
// Built with go.mod it supports consul, etcd and redis; with zookeeper.mod and the tag zookeeper that one, and likewise
// with nacos.mod and the tag nacos.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	metrics "github.com/rcrowley/go-metrics"
	"github.com/smallnest/rpcx/client"
	rpcxlog "github.com/smallnest/rpcx/log"
	"github.com/smallnest/rpcx/protocol"
	"github.com/smallnest/rpcx/server"
)

const (
	basePath = "/rpcx_test"
	// metadata is the metadata of both sides' servers.
	metadata = "group=test&weight=5"
	// refresh is the interval of renewals. rpcx's entries expire, if at all, after twice that, which a busy machine must not
	// exceed.
	refresh = 3 * time.Second
	// patience exceeds the time to be discovered, and to expire in most registries: ZooKeeper's sessions last 10 s.
	patience = 60 * time.Second
)

// registry is the setup of rpcx's own plugins.
type registry struct {
	// register creates a started plugin.
	register func(registryAddr, serverAddr string) (any, error)
	// discover fails while nothing is registered.
	discover func(registryAddr, service string) (client.ServiceDiscovery, error)
	// memory is how long a dead server may remain listed, if longer than patience.
	memory time.Duration
}

func main() {
	flag.Parse()
	known, ok := registries[flag.Arg(1)]
	if !ok || flag.NArg() < 3 {
		log.Fatal("usage: peer serve|find REGISTRY ADDR [--kill PID]")
	}
	rpcxlog.SetDummyLogger()
	switch flag.Arg(0) {
	case "serve":
		serve(known, flag.Arg(2))
	case "find":
		rest := flag.NewFlagSet("find", flag.ExitOnError)
		victim := rest.Int("kill", 0, "process of the server that is found")
		_ = rest.Parse(flag.Args()[3:])
		if !find(known, flag.Arg(2), *victim) {
			os.Exit(1)
		}
	default:
		log.Fatalf("peer: no command %q", flag.Arg(0))
	}
}

// ---------------------------------------------------------------------------- the server

// Args is the argument of Mul.
type Args struct{ A, B int }

// Reply is its result.
type Reply struct{ C int }

// Arith is the service of rpcx's examples.
type Arith struct{}

// Mul multiplies.
func (Arith) Mul(_ context.Context, args *Args, reply *Reply) error {
	reply.C = args.A * args.B
	return nil
}

func serve(known registry, registryAddr string) {
	// The plugins need the address before the server runs, and nobody else may take it until then.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	addr := listener.Addr().String()
	plugin, err := known.register(registryAddr, "tcp@"+addr)
	if err != nil {
		log.Fatal(err)
	}
	s := server.NewServer()
	s.Plugins.Add(plugin)
	if err := s.RegisterName("Arith", Arith{}, metadata); err != nil {
		log.Fatal(err)
	}
	server.RegisterMakeListener("tcp", func(*server.Server, string) (net.Listener, error) { return listener, nil })
	go func() { log.Fatal(s.Serve("tcp", addr)) }()
	fmt.Println("listening", addr)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// newMetrics makes the plugins report calls and connections, as for rpcx's dashboard.
func newMetrics() metrics.Registry {
	return metrics.NewRegistry()
}

// ---------------------------------------------------------------------------- the client

func find(known registry, registryAddr string, victim int) (passed bool) {
	passed = true
	record := func(name string, err error) {
		if err == nil {
			fmt.Println("ok  ", name)
			return
		}
		passed = false
		fmt.Printf("FAIL %s: %v\n", name, err)
	}

	discovery, err := found(known, registryAddr)
	record("found", err)
	if err != nil {
		return false
	}
	record("metadata", told(discovery))
	record("called", called(discovery))
	if victim != 0 {
		record("gone_after_kill", gone(discovery, victim, max(patience, known.memory)))
	}
	return passed
}

// found waits until the service is discovered.
func found(known registry, registryAddr string) (client.ServiceDiscovery, error) {
	limit := time.Now().Add(patience)
	for {
		discovery, err := known.discover(registryAddr, "Arith")
		if err == nil && len(discovery.GetServices()) > 0 {
			return discovery, nil
		}
		if time.Now().After(limit) {
			return nil, errors.Join(errors.New("nobody is there"), err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// told returns what is wrong with the discovered server.
func told(discovery client.ServiceDiscovery) error {
	servers := discovery.GetServices()
	if len(servers) != 1 || !strings.HasPrefix(servers[0].Key, "tcp@127.0.0.1:") {
		return fmt.Errorf("want one server at tcp@127.0.0.1, got %s", texts(servers))
	}
	values, err := url.ParseQuery(servers[0].Value)
	if err != nil || values.Get("weight") != "5" || !slices.Contains(values["group"], "test") {
		return fmt.Errorf("want %s, got %s", metadata, texts(servers))
	}
	return nil
}

func called(discovery client.ServiceDiscovery) error {
	option := client.DefaultOption
	option.SerializeType = protocol.MsgPack
	option.Group = "test"
	arith := client.NewXClient("Arith", client.Failover, client.WeightedRoundRobin, discovery, option)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var reply Reply
	if err := arith.Call(ctx, "Mul", &Args{A: 7, B: 8}, &reply); err != nil {
		return err
	}
	if reply.C != 56 {
		return fmt.Errorf("want 56, got %d", reply.C)
	}
	return nil
}

// gone kills the server and waits until none is listed.
func gone(discovery client.ServiceDiscovery, victim int, memory time.Duration) error {
	if err := syscall.Kill(victim, syscall.SIGKILL); err != nil {
		return err
	}
	limit := time.Now().Add(memory)
	for time.Now().Before(limit) {
		if len(discovery.GetServices()) == 0 {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("after %v there is still %s", memory, texts(discovery.GetServices()))
}

func texts(servers []*client.KVPair) string {
	all := make([]string, 0, len(servers))
	for _, server := range servers {
		all = append(all, server.Key+"?"+server.Value)
	}
	return fmt.Sprint(all)
}
