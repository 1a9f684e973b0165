//go:build zookeeper

package main

import (
	"fmt"

	"github.com/smallnest/rpcx/client"
	"github.com/smallnest/rpcx/serverplugin"
)

// Later versions of rpcx have it in a separate module that the Go proxy does not have.
var registries = map[string]registry{"zookeeper": {
	register: func(registryAddr, serverAddr string) (any, error) {
		plugin := &serverplugin.ZooKeeperRegisterPlugin{
			ServiceAddress:   serverAddr,
			ZooKeeperServers: []string{registryAddr},
			BasePath:         basePath,
			Metrics:          newMetrics(),
			UpdateInterval:   refresh,
		}
		return plugin, plugin.Start()
	},
	discover: func(registryAddr, service string) (discovery client.ServiceDiscovery, err error) {
		// It panics if nothing has been registered yet.
		defer func() {
			if cause := recover(); cause != nil {
				err = fmt.Errorf("%v", cause)
			}
		}()
		return client.NewZookeeperDiscovery(basePath, service, []string{registryAddr}, nil), nil
	},
}}
