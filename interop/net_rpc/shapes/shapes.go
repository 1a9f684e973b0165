// Package shapes holds the types that client and server of net/rpc exchange.
package shapes

import (
	"math/big"
	"net/netip"
	"net/url"
)

// Args are the arguments of Arith's methods, as in the example of Go's net/rpc.
type Args struct {
	A, B int
}

// Reply is the result of Arith's methods.
type Reply struct {
	C int
}

// Point is a small nested struct.
type Point struct {
	X, Y int32
}

// Shape has fields of every kind that gob, JSON and MessagePack have in common.
type Shape struct {
	Name    string
	Visible bool
	Sides   uint16
	Area    float64
	Scale   float32
	Offset  int64
	Origin  Point
	Corners []Point
	Tags    []string
	Grid    [][]int
	Labels  map[string]string
	Named   map[string]Point
	Center  *Point
	Absent  *Point
	Parent  *Shape
}

// Transfer consists of types that encode themselves: big.Int by GobEncoder, the others by BinaryMarshaler.
type Transfer struct {
	Amount big.Int
	Fee    *big.Int
	From   netip.Addr
	Page   url.URL
}

// Triangle is a shape with every field set, except those that should be empty.
func Triangle() Shape {
	parent := Shape{Name: "parent", Labels: map[string]string{"only": "this"}}
	return Shape{
		Name:    "triangle △",
		Visible: true,
		Sides:   3,
		Area:    10.5,
		Scale:   0.25,
		Offset:  -1 << 40,
		Origin:  Point{1, -2},
		Corners: []Point{{0, 0}, {3, 0}, {0, 7}},
		Tags:    []string{"sharp", "", "flat"},
		Grid:    [][]int{{1, 2}, {3}},
		Labels:  map[string]string{"a": "1", "b": ""},
		Named:   map[string]Point{"p": {5, 6}},
		Center:  &Point{1, 2},
		Parent:  &parent,
	}
}
