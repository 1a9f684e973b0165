package main

import (
	"bytes"
	"encoding/gob"
	"net/rpc"

	"github.com/polyrpc/polyrpc/interop/net_rpc/shapes"
)

// AuthorizationAndServiceMethod is what the rpcx of 2016 writes in the place of a name in v1.1.0 (authorization.go).
type AuthorizationAndServiceMethod struct {
	Authorization string
	ServiceMethod string
	Tag           string
}

// authorizedInGob are calls by such names, in the codecs whose texts may hold any bytes.
var authorizedInGob = []row{
	{"gob_authorized_in_gob", mulAuthorizedInGob(dialers[0].dial)},
	{"msgpack_authorized_in_gob", mulAuthorizedInGob(dialers[3].dial)},
}

func mulAuthorizedInGob(dial dialer) func(addr string) error {
	return func(addr string) error {
		client, err := dial(addr)
		if err != nil {
			return err
		}
		defer client.Close()
		var name bytes.Buffer
		named := AuthorizationAndServiceMethod{"secret", "Arith.Mul", "Bearer"}
		if err := gob.NewEncoder(&name).Encode(&named); err != nil {
			return err
		}
		return mulBy(name.String())(client)
	}
}

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
