package main

import (
	"bytes"
	"encoding/gob"
	"net/rpc"
)

// AuthorizationAndServiceMethod replaces the method name in rpcx v1.1.0 of 2016 (authorization.go).
type AuthorizationAndServiceMethod struct {
	Authorization string
	ServiceMethod string
	Tag           string
}

func mulAuthorizedInGob(client *rpc.Client) error {
	var name bytes.Buffer
	named := AuthorizationAndServiceMethod{"secret", "Arith.Mul", "Bearer"}
	if err := gob.NewEncoder(&name).Encode(&named); err != nil {
		return err
	}
	return mulBy(name.String())(client)
}
