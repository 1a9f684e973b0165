// Command hour is the Go rpcx client of interop/newcomer/first_hour: it calls the service of hour/shop.proto in JSON, over TLS
// and with a token.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"time"

	"github.com/smallnest/rpcx/client"
	"github.com/smallnest/rpcx/protocol"

	"github.com/polyrpc/polyrpc/interop/go/secure"
)

type priceRequest struct {
	Item string `json:"item"`
}

type priceReply struct {
	Item  string `json:"item"`
	Cents int    `json:"cents"`
}

func main() {
	files := secure.Flags()
	token := flag.String("token", "", "credential to send")
	flag.Parse()
	secured, err := files.Client()
	if err != nil {
		log.Fatal(err)
	}
	option := client.DefaultOption
	option.TLSConfig = secured
	option.SerializeType = protocol.JSON
	servers, err := client.NewPeer2PeerDiscovery("tcp@"+flag.Arg(0), "")
	if err != nil {
		log.Fatal(err)
	}
	prices := client.NewXClient("shop.Prices", client.Failfast, client.RandomSelect, servers, option)
	defer prices.Close()
	prices.Auth(*token)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	var tea priceReply
	if err := prices.Call(ctx, "Price", &priceRequest{Item: "tea"}, &tea); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s costs %d cents\n", tea.Item, tea.Cents)
	fmt.Println(prices.Call(ctx, "Price", &priceRequest{Item: "ink"}, &priceReply{}))
}
