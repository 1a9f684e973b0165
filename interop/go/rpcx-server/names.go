package main

import (
	"context"
	"errors"
	"strings"

	"github.com/smallnest/rpcx/reflection"
	"github.com/smallnest/rpcx/server"
)

// Order and Bill have nothing in common with the messages of rpcx's example.
type Order struct {
	Price, Count int
	Label        string
}

// Bill is the reply to an order.
type Bill struct {
	Total int
	Label string
}

// Named has a method with the name of one of rpcx's example, and another one.
type Named struct{}

// Mul returns the total price.
func (Named) Mul(_ context.Context, order *Order, bill *Bill) error {
	bill.Total, bill.Label = order.Price*order.Count, strings.ToUpper(order.Label)
	return nil
}

// Refund returns the negative total price.
func (Named) Refund(_ context.Context, order *Order, bill *Bill) error {
	bill.Total, bill.Label = -order.Price*order.Count, strings.ToUpper(order.Label)
	return nil
}

// registerNames adds a service with the name of one of `polyrpc serve`.
func registerNames(s *server.Server) error {
	known := reflection.New()
	s.Plugins.Add(known)
	return errors.Join(s.RegisterName("Reflection", known, ""), s.RegisterName("Arith", Named{}, ""))
}
