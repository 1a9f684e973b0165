// Command rpcx-client tests a server with the real rpcx client, case by case.
//
//	rpcx-client [--auth-addr ADDR] [--http-addr ADDR] [--unix-addr PATH] [--ca FILE [--cert FILE --key FILE]] ADDR [CASE…]
//	rpcx-client --list
//
// One line per case: `ok   NAME`, `skip NAME: why` or `FAIL NAME: why`. It exits with 1 if a case failed.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	rpcxlog "github.com/smallnest/rpcx/log"

	"github.com/polyrpc/polyrpc/interop/go/secure"
)

// peer is the server under test.
type peer struct {
	addr     string
	authAddr string
	httpAddr string
	unixAddr string
}

// testCase is one row of the table of results.
type testCase struct {
	name string
	run  func(peer) error
}

// errSkipped is returned by a case that needs a listener without a given address.
var errSkipped = errors.New("needs")

// caseLimit is far above the duration of any case with a responsive server.
const caseLimit = 120 * time.Second

func main() {
	list := flag.Bool("list", false, "print the names of the cases")
	authAddr := flag.String("auth-addr", "", "address of a listener that asks for the token")
	httpAddr := flag.String("http-addr", "", "address that answers HTTP CONNECT; by default ADDR, as with one port for all")
	flag.StringVar(&network, "network", "tcp", "tcp, kcp or quic")
	unixAddr := flag.String("unix-addr", "", "path of a Unix socket of the same server")
	files := secure.Flags()
	flag.Usage = usage
	flag.Parse()

	if *list {
		for _, c := range cases {
			fmt.Println(c.name)
		}
		return
	}
	if flag.NArg() == 0 {
		usage()
		os.Exit(2)
	}

	rpcxlog.SetDummyLogger()
	var err error
	if secured, err = files.Client(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	server := peer{addr: flag.Arg(0), authAddr: *authAddr, httpAddr: *httpAddr, unixAddr: *unixAddr}
	if server.httpAddr == "" {
		server.httpAddr = server.addr
	}
	if !runAll(server, selected(flag.Args()[1:])) {
		os.Exit(1)
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: rpcx-client [--auth-addr ADDR] [--http-addr ADDR] [--unix-addr PATH] ADDR [CASE…]\n       rpcx-client --list")
	flag.PrintDefaults()
}

// selected returns the cases of the given names, or all of them; an unknown name ends the program, so
// that a misspelt case never counts as passed.
func selected(names []string) []testCase {
	if len(names) == 0 {
		return cases
	}
	var chosen []testCase
	for _, name := range names {
		at := slices.IndexFunc(cases, func(c testCase) bool { return c.name == name })
		if at < 0 {
			fmt.Fprintf(os.Stderr, "rpcx-client: no case named %q\n", name)
			os.Exit(2)
		}
		chosen = append(chosen, cases[at])
	}
	return chosen
}

func runAll(server peer, chosen []testCase) (passed bool) {
	passed = true
	for _, c := range chosen {
		switch err := runLimited(server, c); {
		case err == nil:
			fmt.Println("ok  ", c.name)
		case errors.Is(err, errSkipped):
			fmt.Printf("skip %s: %v\n", c.name, err)
		default:
			passed = false
			fmt.Printf("FAIL %s: %v\n", c.name, err)
		}
	}
	return passed
}

// runLimited runs a case; neither a silent server nor a panic inside rpcx stops the others.
func runLimited(server peer, c testCase) error {
	done := make(chan error, 1)
	go func() {
		defer func() {
			if cause := recover(); cause != nil {
				done <- fmt.Errorf("panic: %v", cause)
			}
		}()
		done <- c.run(server)
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(caseLimit):
		return fmt.Errorf("no end after %v", caseLimit)
	}
}
