// Peer of the gob tests with Go's own implementation: a line-based program.
//
//	gob random SEED STREAMS    streams of values of random types
//	gob echo                   values of the types in types.go, decoded and encoded again
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "gob:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	switch {
	case len(args) == 3 && args[0] == "random":
		seed, err := strconv.ParseInt(args[1], 10, 64)
		if err != nil {
			return err
		}
		streams, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		return random(seed, streams, in, out)
	case len(args) == 1 && args[0] == "echo":
		return echo(in, out)
	}
	return fmt.Errorf("usage: gob random SEED STREAMS | gob echo")
}
