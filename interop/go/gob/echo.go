package main

import (
	"bufio"
	"bytes"
	"encoding/gob"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
)

// echo reads streams of Every, one per line, and prints the same values as a new stream.
func echo(in *bufio.Reader, out *bufio.Writer) error {
	for {
		line, err := in.ReadString('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		answer, err := again(strings.TrimSpace(line))
		if err != nil {
			answer = "FAIL " + err.Error()
		}
		fmt.Fprintln(out, answer)
		if err := out.Flush(); err != nil {
			return err
		}
	}
}

func again(line string) (string, error) {
	stream, err := hex.DecodeString(line)
	if err != nil {
		return "", err
	}
	decoder := gob.NewDecoder(bytes.NewReader(stream))
	var written bytes.Buffer
	encoder := gob.NewEncoder(&written)
	for {
		var value Every
		err := decoder.Decode(&value)
		if err == io.EOF {
			return hex.EncodeToString(written.Bytes()), nil
		}
		if err != nil {
			return "", err
		}
		if err := encoder.Encode(value); err != nil {
			return "", err
		}
	}
}
