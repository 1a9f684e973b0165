//go:build !zookeeper && !nacos

package main

import (
	"strings"

	"github.com/rpcxio/libkv"
	"github.com/rpcxio/libkv/store"
	"github.com/smallnest/rpcx/client"
	"github.com/smallnest/rpcx/serverplugin"
)

var redis = registry{
	register: func(registryAddr, serverAddr string) (any, error) {
		plugin := &serverplugin.RedisRegisterPlugin{
			ServiceAddress: serverAddr,
			RedisServers:   []string{registryAddr},
			BasePath:       basePath,
			Metrics:        newMetrics(),
			UpdateInterval: refresh,
		}
		return plugin, plugin.Start()
	},
	discover: func(registryAddr, service string) (client.ServiceDiscovery, error) {
		kv, err := libkv.NewStore(store.REDIS, []string{registryAddr}, nil)
		if err != nil {
			return nil, err
		}
		return newStored(kv, basePath+"/"+service)
	},
}

// newStored discovers servers through the store library of rpcx. rpcx's client for Redis is as thin as this.
func newStored(kv store.Store, directory string) (*servers, error) {
	first, err := kv.List(directory)
	if err != nil {
		return nil, err
	}
	found := &servers{}
	found.set(below(directory, first))
	changes, err := kv.WatchTree(directory, make(chan struct{}))
	if err != nil {
		return nil, err
	}
	go func() {
		for pairs := range changes {
			found.set(below(directory, pairs))
		}
	}()
	return found, nil
}

func below(directory string, stored []*store.KVPair) []*client.KVPair {
	var pairs []*client.KVPair
	for _, pair := range stored {
		if name, ok := strings.CutPrefix(pair.Key, directory+"/"); ok {
			pairs = append(pairs, &client.KVPair{Key: name, Value: string(pair.Value)})
		}
	}
	return pairs
}
