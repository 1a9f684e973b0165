// Package arith holds the types that both programs exchange, as an ordinary rpcx user would declare them.
package arith

import "time"

// Token is the credential that a server started with --auth requires.
const Token = "bearer tGzv3JOkF0XG5Qx2TlKWIA"

// Args is the argument of every method of Arith.
type Args struct {
	A int
	B int
}

// Reply is the result of every method of Arith.
type Reply struct {
	C int
}

// Rich has a field of every kind that rpcx's own codecs write differently from one another.
type Rich struct {
	I8  int8
	I   int
	U   uint32
	F32 float32
	F   float64
	S   string
	By  []byte
	L   []int
	M   map[string]int
	N   Args
	P   *Args
	Nil *Args
	B   bool
	T   time.Time
}

// RichSample is the value of the captured vector rpcx/rich_json.
func RichSample() Rich {
	return Rich{
		I8: -3, I: 300, U: 70000, F32: 1.5, F: 2.25,
		S: "héllo", By: []byte{1, 2, 3}, L: []int{1, -1, 128, 65536}, M: map[string]int{"x": 1},
		N: Args{A: 7, B: 8}, P: &Args{A: 1, B: 2},
		B: true, T: time.Unix(1700000000, 5).UTC(),
	}
}
