package main

import (
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/netip"
	"net/rpc"
	"net/url"
	"reflect"
	"strings"

	"github.com/polyrpc/polyrpc/interop/net_rpc/shapes"
)

// testCase runs over a connection of each codec.
type testCase struct {
	name string
	run  func(*rpc.Client) error
}

var cases = []testCase{
	{"mul", mul},
	{"error", failure("Arith.Error", "boom")},
	{"unknown_method", failure("Arith.Nope", "rpc: can't find method Arith.Nope")},
	{"unknown_service", failure("Nope.Mul", "rpc: can't find service Nope.Mul")},
	{"ill_formed", failure("NoSuchFunction", "rpc: service/method request ill-formed: NoSuchFunction")},
	{"no_name_before_the_dot", failure(".Mul", "rpc: can't find service .Mul")},
	{"wrong_type", wrongType},
	{"nested_shape", echo("Shapes.Echo")},
	{"passed_through", echo("Echo.Echo")},
	{"nothing_in_them", nothingInThem},
	{"one_argument", length},
	{"alias", mulBy("math.times")},
	{"authorized", mulBy("Arith.Mul\x1fsecret\x1fBearer")},
	{"large_text", largeText},
	{"concurrent_100", concurrent},
	{"pending_calls_end_in_any_order", overtaking},
}

// binaryCases are for codecs whose strings may hold any bytes, unlike JSON's.
var binaryCases = []testCase{
	{"authorized_in_gob", mulAuthorizedInGob},
}

// gobCases are for types that only gob carries.
var gobCases = []testCase{
	{"values_that_encode_themselves", selfEncoded},
}

// selfEncoded echoes a transfer with its amount negated.
func selfEncoded(client *rpc.Client) error {
	sent := shapes.Transfer{Fee: big.NewInt(7), From: netip.MustParseAddr("2001:db8::1")}
	sent.Amount.SetString("123456789012345678901234567890", 10)
	page, err := url.Parse("http://a.example/b?c=d")
	if err != nil {
		return err
	}
	sent.Page = *page
	var got shapes.Transfer
	if err := client.Call("Shapes.Transfer", &sent, &got); err != nil {
		return err
	}
	if err := equal("the amount", got.Amount.String(), "-123456789012345678901234567890"); err != nil {
		return err
	}
	if got.Fee == nil || got.Fee.Int64() != 7 {
		return fmt.Errorf("the fee is %v", got.Fee)
	}
	if err := equal("the address", got.From, sent.From); err != nil {
		return err
	}
	return equal("the page", got.Page.String(), sent.Page.String())
}

func mul(client *rpc.Client) error {
	for n := range 20 {
		var reply shapes.Reply
		if err := client.Call("Arith.Mul", &shapes.Args{A: 7, B: n - 10}, &reply); err != nil {
			return err
		}
		if err := equal("C", reply.C, 7*(n-10)); err != nil {
			return err
		}
	}
	return nil
}

// failure makes a call that fails with this text, twice, and then one that succeeds.
func failure(method, text string) func(*rpc.Client) error {
	return func(client *rpc.Client) error {
		for range 2 {
			var reply shapes.Reply
			err := client.Call(method, &shapes.Args{A: 7, B: 8}, &reply)
			var told rpc.ServerError
			if !errors.As(err, &told) {
				return fmt.Errorf("%s: got %v, want a failure told by the server", method, err)
			}
			if err := equal("the text", string(told), text); err != nil {
				return err
			}
		}
		return mul(client)
	}
}

// wrongType sends an argument that the method cannot decode: the call fails, the connection stays open.
func wrongType(client *rpc.Client) error {
	var reply shapes.Reply
	err := client.Call("Arith.Mul", &struct{ A, B string }{"seven", "eight"}, &reply)
	var told rpc.ServerError
	if !errors.As(err, &told) {
		return fmt.Errorf("got %v, want a failure told by the server", err)
	}
	return mul(client)
}

// echo sends a struct of structs, lists, maps and pointers.
func echo(method string) func(*rpc.Client) error {
	return func(client *rpc.Client) error {
		for _, sent := range []shapes.Shape{shapes.Triangle(), {}, {Grid: [][]int{{}}}, shapes.Triangle()} {
			var got shapes.Shape
			if err := client.Call(method, &sent, &got); err != nil {
				return err
			}
			tidy(&sent)
			tidy(&got)
			if !reflect.DeepEqual(got, sent) {
				return fmt.Errorf("sent %+v, got %+v", sent, got)
			}
		}
		return nil
	}
}

// tidy unifies empty and nil lists and maps, which the codecs do not distinguish.
func tidy(shape *shapes.Shape) {
	for shape != nil {
		if len(shape.Corners) == 0 {
			shape.Corners = nil
		}
		if len(shape.Tags) == 0 {
			shape.Tags = nil
		}
		if len(shape.Grid) == 0 {
			shape.Grid = nil
		}
		for at, row := range shape.Grid {
			if len(row) == 0 {
				shape.Grid[at] = nil
			}
		}
		if len(shape.Labels) == 0 {
			shape.Labels = nil
		}
		if len(shape.Named) == 0 {
			shape.Named = nil
		}
		shape = shape.Parent
	}
}

// nothingInThem requests typed empty values.
func nothingInThem(client *rpc.Client) error {
	var names []string
	if err := client.Call("Shapes.Names", "", &names); err != nil {
		return fmt.Errorf("a list: %w", err)
	}
	var labels map[string]string
	if err := client.Call("Shapes.Labels", "", &labels); err != nil {
		return fmt.Errorf("a map: %w", err)
	}
	var grid [][]int
	if err := client.Call("Shapes.Grid", "", &grid); err != nil {
		return fmt.Errorf("a list of a list: %w", err)
	}
	if len(names) != 0 || len(labels) != 0 || len(grid) != 1 || len(grid[0]) != 0 {
		return fmt.Errorf("got %v, %v and %v", names, labels, grid)
	}
	return mul(client)
}

func length(client *rpc.Client) error {
	for _, text := range []string{"", "four", "日本"} {
		var got int
		if err := client.Call("Shapes.Length", text, &got); err != nil {
			return err
		}
		if err := equal("the length", got, len(text)); err != nil {
			return err
		}
	}
	return nil
}

// alias calls a method by its alias.
// mulBy calls Arith.Mul by another name.
func mulBy(name string) func(*rpc.Client) error {
	return func(client *rpc.Client) error {
		var reply shapes.Reply
		if err := client.Call(name, &shapes.Args{A: 7, B: 8}, &reply); err != nil {
			return err
		}
		if err := equal("C", reply.C, 56); err != nil {
			return err
		}
		return mul(client)
	}
}

func largeText(client *rpc.Client) error {
	shape := shapes.Shape{Name: strings.Repeat("0123456789abcdef", 1<<16)}
	var got shapes.Shape
	if err := client.Call("Shapes.Echo", &shape, &got); err != nil {
		return err
	}
	if got.Name != shape.Name {
		return fmt.Errorf("%d bytes came back of %d", len(got.Name), len(shape.Name))
	}
	return nil
}

func concurrent(client *rpc.Client) error {
	results := make(chan error)
	for n := range 100 {
		go func() {
			for range 10 {
				var reply shapes.Reply
				if err := client.Call("Arith.Mul", &shapes.Args{A: n, B: 3}, &reply); err != nil {
					results <- err
					return
				}
				if err := equal("C", reply.C, 3*n); err != nil {
					results <- err
					return
				}
			}
			results <- nil
		}()
	}
	var all error
	for range 100 {
		all = errors.Join(all, <-results)
	}
	return all
}

// errEarly: the slow call has ended before the quick one.
var errEarly = errors.New("the slow call ended before the quick ones")

// overtaking makes a slow call, followed by quick ones. On a busy machine a short one may be over before: then it takes longer.
func overtaking(client *rpc.Client) error {
	err := overtakes(client, 300)
	if errors.Is(err, errEarly) {
		err = overtakes(client, 5000)
	}
	return err
}

func overtakes(client *rpc.Client, pause int) error {
	var slow shapes.Reply
	pending := client.Go("Arith.Sleep", &shapes.Args{A: pause}, &slow, nil)
	if err := mul(client); err != nil {
		return err
	}
	select {
	case <-pending.Done:
		return errEarly
	default:
	}
	if call := <-pending.Done; call.Error != nil {
		return call.Error
	}
	return equal("C", slow.C, pause)
}

// pages are the plain HTTP pages of Go's servers.
var pages = []row{
	{"http_must_connect", func(addr string) error {
		return page(addr, rpc.DefaultRPCPath, http.StatusMethodNotAllowed, "405 must CONNECT\n")
	}},
	{"debug_page", func(addr string) error {
		return page(addr, rpc.DefaultDebugPath, http.StatusOK, "Service Arith")
	}},
}

func page(addr, path string, status int, part string) error {
	response, err := http.Get("http://" + addr + path)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if err := equal("the status", response.StatusCode, status); err != nil {
		return err
	}
	if !strings.Contains(string(body), part) {
		return fmt.Errorf("no %q in %q", part, body)
	}
	return nil
}

func equal[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s is %v, want %v", what, got, want)
	}
	return nil
}
