//go:build !zookeeper && !nacos

package main

import (
	"time"

	"github.com/rpcxio/rpcx-consul/client"
	"github.com/rpcxio/rpcx-consul/serverplugin"
	rpcx "github.com/smallnest/rpcx/client"
)

var consul = registry{
	register: func(registryAddr, serverAddr string) (any, error) {
		plugin := &serverplugin.ConsulRegisterPlugin{
			ServiceAddress: serverAddr,
			ConsulServers:  []string{registryAddr},
			BasePath:       basePath,
			Metrics:        newMetrics(),
			// It is also the TTL of a session, for which this is Consul's minimum.
			UpdateInterval: 10 * time.Second,
		}
		return plugin, plugin.Start()
	},
	discover: func(registryAddr, service string) (rpcx.ServiceDiscovery, error) {
		return client.NewConsulDiscovery(basePath, service, []string{registryAddr}, nil)
	},
	// A session expires one to two TTLs after its last renewal.
	memory: 60 * time.Second,
}
