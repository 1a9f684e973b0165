package main

import (
	"encoding/binary"
	"encoding/gob"
	"errors"
	"reflect"
	"time"
)

// Tree contains itself, in every possible way.
type Tree struct {
	V      int
	Left   *Tree
	Kids   []Tree
	ByName map[string]*Tree
}

// Registered is stored in interfaces.
type Registered struct {
	A    int
	B    string
	More any
}

// Lists contains lists and maps of named types.
type Lists struct {
	Lists []Lists
	Of    [][]string
	Any   []any
	By    map[int8][]Registered
}

// Embedded is a field of Embeds, under its own name.
type Embedded struct{ Inner int }

// Embeds has an embedded struct, and fields that gob ignores.
type Embeds struct {
	Embedded
	Outer  string
	hidden int
	Done   chan int
}

// ByGob encodes itself.
type ByGob struct{ text string }

// GobEncode implements gob.GobEncoder.
func (v ByGob) GobEncode() ([]byte, error) { return []byte("<" + v.text + ">"), nil }

// GobDecode implements gob.GobDecoder.
func (v *ByGob) GobDecode(b []byte) error {
	if len(b) < 2 {
		return errors.New("too short")
	}
	v.text = string(b[1 : len(b)-1])
	return nil
}

// ByBinary encodes itself as an encoding.BinaryMarshaler.
type ByBinary struct{ number int64 }

// MarshalBinary implements encoding.BinaryMarshaler.
func (v ByBinary) MarshalBinary() ([]byte, error) {
	return binary.BigEndian.AppendUint64(nil, uint64(v.number)), nil
}

// UnmarshalBinary implements encoding.BinaryUnmarshaler.
func (v *ByBinary) UnmarshalBinary(b []byte) error {
	if len(b) != 8 {
		return errors.New("not 8 bytes")
	}
	v.number = int64(binary.BigEndian.Uint64(b))
	return nil
}

// Held corresponds to the Rust program's enum.
type Held interface{}

// Circle can be stored in an interface.
type Circle struct{ R float64 }

// Every corresponds to a struct of the Rust program.
type Every struct {
	B        bool
	I8       int8
	I        int
	U8       uint8
	U        uint64
	F32      float32
	F        float64
	C        complex128
	S        string
	Bytes    []byte
	List     []int32
	Lists    [][]string
	Array    [3]uint16
	Map      map[string]int
	Numbers  map[int16]Point
	Point    Point
	Pointer  *Point
	Points   []Point
	Held     Held
	Many     []Held
	Time     time.Time
	Colour   string
	Tree     *Node
	Sixteen  [16]byte
	Optional *int
	Empty    struct{}
	Rune     rune
}

// Point is a field of Every.
type Point struct{ X, Y int }

// Node contains itself.
type Node struct {
	V    int
	Next *Node
	Kids []Node
}

// registered are the types that interfaces may hold.
var registered = []reflect.Type{
	reflect.TypeFor[int](), reflect.TypeFor[string](), reflect.TypeFor[float64](), reflect.TypeFor[bool](),
	reflect.TypeFor[uint16](), reflect.TypeFor[[]byte](), reflect.TypeFor[[]float64](), reflect.TypeFor[[]string](),
	reflect.TypeFor[complex128](), reflect.TypeFor[Registered](), reflect.TypeFor[Tree](), reflect.TypeFor[Lists](),
	reflect.TypeFor[[]any](), reflect.TypeFor[map[string]any](), reflect.TypeFor[time.Time](), reflect.TypeFor[ByGob](),
	reflect.TypeFor[[2]Registered](),
}

func init() {
	for _, of := range registered {
		gob.Register(reflect.Zero(of).Interface())
	}
	gob.RegisterName("circle", Circle{})
	gob.RegisterName("points", []Point(nil))
}
