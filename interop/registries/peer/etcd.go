//go:build !zookeeper && !nacos

package main

import (
	"github.com/rpcxio/rpcx-etcd/client"
	"github.com/rpcxio/rpcx-etcd/serverplugin"
	rpcx "github.com/smallnest/rpcx/client"
)

var etcd = registry{
	register: func(registryAddr, serverAddr string) (any, error) {
		plugin := &serverplugin.EtcdV3RegisterPlugin{
			ServiceAddress: serverAddr,
			EtcdServers:    []string{registryAddr},
			BasePath:       basePath,
			Metrics:        newMetrics(),
			UpdateInterval: refresh,
		}
		return plugin, plugin.Start()
	},
	discover: func(registryAddr, service string) (rpcx.ServiceDiscovery, error) {
		// With false it would stop watching once the last server is gone.
		return client.NewEtcdV3Discovery(basePath, service, []string{registryAddr}, true, nil)
	},
}
