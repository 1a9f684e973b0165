package main

import (
	"bufio"
	"bytes"
	"encoding/gob"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"math/rand"
	"reflect"
	"strings"
	"time"
)

const (
	typesOfStream  = 4
	valuesOfStream = 20
)

// random prints, for each stream, the stream and its values as JSON, one line each. It reads back a stream of
// the same values, and prints "ok" or the difference.
func random(seed int64, streams int, in *bufio.Reader, out *bufio.Writer) error {
	made := maker{rand.New(rand.NewSource(seed))}
	for range streams {
		types, stream, err := made.stream()
		if err != nil {
			return err
		}
		values, err := decode(types, stream)
		if err != nil {
			return fmt.Errorf("what Go wrote itself: %w", err)
		}
		fmt.Fprintf(out, "%d %s\n", len(values), hex.EncodeToString(stream))
		for _, value := range values {
			fmt.Fprintln(out, show(value.Elem()))
		}
		if err := out.Flush(); err != nil {
			return err
		}
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		fmt.Fprintln(out, verdict(types, values, strings.TrimSpace(line)))
		if err := out.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func verdict(types []reflect.Type, values []reflect.Value, line string) string {
	stream, err := hex.DecodeString(line)
	if err != nil {
		return err.Error()
	}
	back, err := decode(types, stream)
	if err != nil {
		return err.Error()
	}
	for i := range values {
		if !reflect.DeepEqual(values[i].Interface(), back[i].Interface()) {
			return fmt.Sprintf("value %d of type %v: sent %s, got %s", i, types[i], show(values[i].Elem()), show(back[i].Elem()))
		}
	}
	return "ok"
}

func decode(types []reflect.Type, stream []byte) ([]reflect.Value, error) {
	decoder := gob.NewDecoder(bytes.NewReader(stream))
	var values []reflect.Value
	for _, of := range types {
		value := reflect.New(of)
		if err := decoder.DecodeValue(value); err != nil {
			return nil, fmt.Errorf("%v: %w", of, err)
		}
		values = append(values, value)
	}
	if err := decoder.DecodeValue(reflect.Value{}); err != io.EOF {
		return nil, fmt.Errorf("behind the last value: %v", err)
	}
	return values, nil
}

type maker struct{ *rand.Rand }

// stream creates a few types and some values of them.
func (m maker) stream() ([]reflect.Type, []byte, error) {
	var known []reflect.Type
	for range typesOfStream {
		known = append(known, m.top())
	}
	var types []reflect.Type
	var stream bytes.Buffer
	encoder := gob.NewEncoder(&stream)
	for range valuesOfStream {
		of := known[m.Intn(len(known))]
		value := reflect.New(of)
		m.fill(value.Elem(), 0)
		if err := encoder.EncodeValue(value); err != nil {
			return nil, nil, fmt.Errorf("%v: %w", of, err)
		}
		types = append(types, of)
	}
	return types, stream.Bytes(), nil
}

func (m maker) top() reflect.Type {
	if m.Intn(4) == 0 {
		return m.made(0)
	}
	return m.structure(0)
}

var basics = []reflect.Type{
	reflect.TypeFor[bool](), reflect.TypeFor[int](), reflect.TypeFor[int8](), reflect.TypeFor[int16](),
	reflect.TypeFor[int32](), reflect.TypeFor[int64](), reflect.TypeFor[uint](), reflect.TypeFor[uint8](),
	reflect.TypeFor[uint16](), reflect.TypeFor[uint32](), reflect.TypeFor[uint64](), reflect.TypeFor[uintptr](),
	reflect.TypeFor[float32](), reflect.TypeFor[float64](), reflect.TypeFor[complex64](),
	reflect.TypeFor[complex128](), reflect.TypeFor[string](), reflect.TypeFor[[]byte](),
}

var keys = []reflect.Type{
	reflect.TypeFor[string](), reflect.TypeFor[int](), reflect.TypeFor[uint16](), reflect.TypeFor[bool](),
	reflect.TypeFor[[2]int8](),
}

// named are types that cannot be created at run time: named, recursive, or with a custom encoding.
var named = []reflect.Type{
	reflect.TypeFor[time.Time](), reflect.TypeFor[Tree](), reflect.TypeFor[Registered](), reflect.TypeFor[Lists](),
	reflect.TypeFor[ByGob](), reflect.TypeFor[ByBinary](), reflect.TypeFor[any](), reflect.TypeFor[Embeds](),
}

func (m maker) made(depth int) reflect.Type {
	if depth > 3 {
		return basics[m.Intn(len(basics))]
	}
	switch m.Intn(12) {
	case 0:
		return reflect.SliceOf(m.made(depth + 1))
	case 1:
		return reflect.ArrayOf(m.Intn(4), m.made(depth+1))
	case 2:
		return reflect.MapOf(keys[m.Intn(len(keys))], m.made(depth+1))
	case 3:
		return m.structure(depth + 1)
	case 4, 5:
		return named[m.Intn(len(named))]
	}
	return basics[m.Intn(len(basics))]
}

func (m maker) structure(depth int) reflect.Type {
	var fields []reflect.StructField
	for i := range 1 + m.Intn(6) {
		of := m.made(depth + 1)
		for range m.Intn(4) - 1 {
			// Pointers are flattened, except that a pointer to an interface is that interface.
			of = reflect.PointerTo(of)
		}
		fields = append(fields, reflect.StructField{Name: fmt.Sprintf("F%d", i), Type: of})
	}
	return reflect.StructOf(fields)
}

func (m maker) fill(v reflect.Value, depth int) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(m.time()))
		return
	case ByGob:
		v.Set(reflect.ValueOf(ByGob{m.text()}))
		return
	case ByBinary:
		v.Set(reflect.ValueOf(ByBinary{m.Int63() - m.Int63()}))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(m.Intn(2) == 0)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(m.integer() >> (64 - v.Type().Bits()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		v.SetUint(uint64(m.integer()) >> (64 - v.Type().Bits()))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(m.float())
	case reflect.Complex64, reflect.Complex128:
		v.SetComplex(complex(m.float(), m.float()))
	case reflect.String:
		v.SetString(m.text())
	case reflect.Slice:
		if m.Intn(4) > 0 {
			v.Set(reflect.MakeSlice(v.Type(), m.length(depth), 8))
		}
		m.elements(v, depth)
	case reflect.Array:
		m.elements(v, depth)
	case reflect.Map:
		if m.Intn(4) > 0 {
			m.pairs(v, depth)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Field(i)
			if !field.CanSet() {
				continue
			}
			if field.Kind() == reflect.Pointer && (m.Intn(3) == 0 || depth > 5) {
				continue
			}
			m.fill(field, depth+1)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		m.fill(v.Elem(), depth+1)
	case reflect.Interface:
		m.hold(v, depth)
	}
}

func (m maker) elements(v reflect.Value, depth int) {
	for i := range v.Len() {
		m.fill(v.Index(i), depth+1)
	}
}

func (m maker) pairs(v reflect.Value, depth int) {
	v.Set(reflect.MakeMap(v.Type()))
	for range m.length(depth) {
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		m.fill(key, depth+1)
		m.fill(value, depth+1)
		v.SetMapIndex(key, value)
	}
}

// hold puts a registered value into an interface, or leaves it nil.
func (m maker) hold(v reflect.Value, depth int) {
	if depth > 5 || m.Intn(4) == 0 {
		return
	}
	held := reflect.New(registered[m.Intn(len(registered))]).Elem()
	m.fill(held, depth+1)
	switch held.Kind() {
	case reflect.Slice, reflect.Map:
		if held.IsNil() {
			return
		}
	}
	v.Set(held)
}

func (m maker) length(depth int) int {
	if depth > 5 {
		return 0
	}
	return m.Intn(4)
}

// integer covers the whole range, especially near its ends and zero.
func (m maker) integer() int64 {
	switch m.Intn(6) {
	case 0:
		return 0
	case 1:
		return math.MaxInt64
	case 2:
		return math.MinInt64
	case 3:
		return int64(m.Uint64())
	}
	return int64(m.Uint64()) >> m.Intn(64)
}

// float is exact in any representation, including single precision.
func (m maker) float() float64 {
	switch m.Intn(5) {
	case 0:
		return 0
	case 1:
		return float64(m.Intn(1<<20)-1<<19) / 1024
	}
	return float64(m.Intn(2000) - 1000)
}

func (m maker) text() string {
	letters := []rune("abc \"\\\n/é世\u2028😀<&")
	var text strings.Builder
	for range m.Intn(8) * m.Intn(8) {
		text.WriteRune(letters[m.Intn(len(letters))])
	}
	return text.String()
}

func (m maker) time() time.Time {
	if m.Intn(4) == 0 {
		return time.Time{}
	}
	at := time.Unix(int64(m.Intn(1<<32))-1<<31, int64(m.Intn(1000000000)))
	zones := []*time.Location{time.UTC, time.FixedZone("", 5*3600+1800), time.FixedZone("", -3600*11)}
	return at.In(zones[m.Intn(len(zones))])
}
