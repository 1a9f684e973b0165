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
			// It is the time-to-live of a session too, for which Consul takes no less.
			UpdateInterval: 10 * time.Second,
		}
		return plugin, plugin.Start()
	},
	discover: func(registryAddr, service string) (rpcx.ServiceDiscovery, error) {
		return client.NewConsulDiscovery(basePath, service, []string{registryAddr}, nil)
	},
	// A session ends one to two times its time-to-live after it was renewed last.
	memory: 30 * time.Second,
}
