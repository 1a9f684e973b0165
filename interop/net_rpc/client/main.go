// Command client tests a server with Go's own net/rpc, in every codec with a Go module, case by
// case.
//
//	client ADDR [CASE…]
//	client --list
//
// One line per case: `ok   NAME` or `FAIL NAME: why`. It exits with 1 if a case failed.
package main

import (
	"fmt"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
	"slices"
	"time"

	msgpackrpc "github.com/hashicorp/net-rpc-msgpackrpc/v2"
)

// dialer connects to the server with one codec.
type dialer func(addr string) (*rpc.Client, error)

// dialers are the ways to connect; every case runs over each.
var dialers = []struct {
	name string
	dial dialer
}{
	{"gob", func(addr string) (*rpc.Client, error) { return rpc.Dial("tcp", addr) }},
	{"http", func(addr string) (*rpc.Client, error) { return rpc.DialHTTP("tcp", addr) }},
	{"json", func(addr string) (*rpc.Client, error) { return jsonrpc.Dial("tcp", addr) }},
	{"msgpack", func(addr string) (*rpc.Client, error) { return msgpackrpc.Dial("tcp", addr) }},
}

// caseLimit is far above the duration of any case with a responsive server.
const caseLimit = 120 * time.Second

// row is one line of the results.
type row struct {
	name string
	run  func(addr string) error
}

func main() {
	rows := rows()
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: client ADDR [CASE…]\n       client --list")
		os.Exit(2)
	}
	if os.Args[1] == "--list" {
		for _, r := range rows {
			fmt.Println(r.name)
		}
		return
	}
	addr, chosen := os.Args[1], os.Args[2:]
	passed := true
	for _, r := range rows {
		if len(chosen) > 0 && !slices.Contains(chosen, r.name) {
			continue
		}
		if err := limited(func() error { return r.run(addr) }); err != nil {
			passed = false
			fmt.Printf("FAIL %s: %v\n", r.name, err)
		} else {
			fmt.Println("ok  ", r.name)
		}
	}
	if !passed {
		os.Exit(1)
	}
}

// rows are all cases in all codecs that support them, and those of HTTP.
func rows() []row {
	var all []row
	for _, d := range dialers {
		chosen := cases
		if d.name != "json" {
			chosen = slices.Concat(cases, binaryCases)
		}
		if d.name == "gob" {
			chosen = slices.Concat(chosen, gobCases)
		}
		for _, c := range chosen {
			all = append(all, row{d.name + "_" + c.name, func(addr string) error {
				client, err := d.dial(addr)
				if err != nil {
					return err
				}
				defer client.Close()
				return c.run(client)
			}})
		}
	}
	return append(all, pages...)
}

// limited runs a case; a silent server does not stop the others.
func limited(run func() error) error {
	done := make(chan error, 1)
	go func() { done <- run() }()
	select {
	case err := <-done:
		return err
	case <-time.After(caseLimit):
		return fmt.Errorf("no end after %v", caseLimit)
	}
}
