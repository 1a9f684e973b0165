//go:build nacos

package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/clients"
	"github.com/nacos-group/nacos-sdk-go/v2/clients/naming_client"
	"github.com/nacos-group/nacos-sdk-go/v2/common/constant"
	"github.com/nacos-group/nacos-sdk-go/v2/model"
	"github.com/nacos-group/nacos-sdk-go/v2/vo"
	"github.com/smallnest/rpcx/client"
	"github.com/smallnest/rpcx/util"
)

// rpcx-nacos cannot be built from Go's checksum database. It is a thin layer on Nacos' own SDK, which
// uses gRPC, and so is this, with rpcx's metadata format.
var registries = map[string]registry{"nacos": {
	register: func(registryAddr, serverAddr string) (any, error) {
		naming, err := newNaming(registryAddr)
		return &entered{naming, serverAddr}, err
	},
	discover: func(registryAddr, service string) (client.ServiceDiscovery, error) {
		naming, err := newNaming(registryAddr)
		if err != nil {
			return nil, err
		}
		return subscribed(naming, service)
	},
	// Nacos honours the TTL of an entry, and removes ours within 10 s; r-nacos uses its own timeouts
	// for entries kept by HTTP, and takes up to 40 s.
	memory: 120 * time.Second,
}}

func newNaming(registryAddr string) (naming_client.INamingClient, error) {
	ip, port, err := hostAndPort(registryAddr)
	if err != nil {
		return nil, err
	}
	left, err := os.MkdirTemp("", "nacos")
	if err != nil {
		return nil, err
	}
	return clients.NewNamingClient(vo.NacosClientParam{
		ClientConfig: &constant.ClientConfig{
			TimeoutMs:           5000,
			NotLoadCacheAtStart: true,
			// Otherwise it keeps the last server forever.
			UpdateCacheWhenEmpty: true,
			CacheDir:             filepath.Join(left, "cache"),
			LogDir:               filepath.Join(left, "log"),
			LogLevel:             "error",
		},
		ServerConfigs: []constant.ServerConfig{*constant.NewServerConfig(ip, port)},
	})
}

// entered registers services, as a plugin of rpcx's server.
type entered struct {
	naming     naming_client.INamingClient
	serverAddr string
}

// Register registers a service.
func (e *entered) Register(name string, _ any, metadata string) error {
	network, address, _ := strings.Cut(e.serverAddr, "@")
	ip, port, err := hostAndPort(address)
	if err != nil {
		return err
	}
	said := util.ConvertMeta2Map(metadata)
	said["network"] = network
	_, err = e.naming.RegisterInstance(vo.RegisterInstanceParam{
		ServiceName: name,
		Ip:          ip,
		Port:        port,
		Metadata:    said,
		Weight:      1,
		Enable:      true,
		Healthy:     true,
		Ephemeral:   true,
	})
	return err
}

// Unregister does nothing: the server exits without deregistering.
func (e *entered) Unregister(string) error { return nil }

func subscribed(naming naming_client.INamingClient, service string) (*servers, error) {
	first, err := naming.GetService(vo.GetServiceParam{ServiceName: service})
	if err != nil {
		return nil, err
	}
	found := &servers{}
	found.set(pairs(first.Hosts))
	return found, naming.Subscribe(&vo.SubscribeParam{
		ServiceName: service,
		SubscribeCallback: func(instances []model.Instance, err error) {
			if err == nil {
				found.set(pairs(instances))
			}
		},
	})
}

func pairs(instances []model.Instance) []*client.KVPair {
	all := make([]*client.KVPair, 0, len(instances))
	for _, each := range instances {
		all = append(all, &client.KVPair{
			Key:   fmt.Sprintf("%s@%s:%d", each.Metadata["network"], each.Ip, each.Port),
			Value: util.ConvertMap2String(each.Metadata),
		})
	}
	return all
}

func hostAndPort(address string) (host string, port uint64, err error) {
	host, digits, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, err
	}
	port, err = strconv.ParseUint(digits, 10, 16)
	return host, port, err
}
