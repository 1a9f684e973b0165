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

// Bill is the answer to an order.
type Bill struct {
	Total int
	Label string
}

// Named has a method by the name of one of rpcx's example, and one of its own.
type Named struct{}

// Mul answers the price of all.
func (Named) Mul(_ context.Context, order *Order, bill *Bill) error {
	bill.Total, bill.Label = order.Price*order.Count, strings.ToUpper(order.Label)
	return nil
}

// Refund answers the same, the other way round.
func (Named) Refund(_ context.Context, order *Order, bill *Bill) error {
	bill.Total, bill.Label = -order.Price*order.Count, strings.ToUpper(order.Label)
	return nil
}

// registerNames adds a service that shares its name with one of `polyrpc serve`.
func registerNames(s *server.Server) error {
	known := reflection.New()
	s.Plugins.Add(known)
	return errors.Join(s.RegisterName("Reflection", known, ""), s.RegisterName("Arith", Named{}, ""))
}
