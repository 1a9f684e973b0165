//go:build !zookeeper

package main

import (
	"strings"
	"sync"

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

// stored finds servers by the store that rpcx itself stands on. rpcx's client for Redis is a module of its own that the
// Go proxy does not have; it is as thin as this.
type stored struct {
	kv        store.Store
	directory string
	stop      chan struct{}

	mu      sync.Mutex
	servers []*client.KVPair
	told    []chan []*client.KVPair
}

func newStored(kv store.Store, directory string) (*stored, error) {
	first, err := kv.List(directory)
	if err != nil {
		return nil, err
	}
	s := &stored{kv: kv, directory: directory, stop: make(chan struct{})}
	s.set(first)
	changes, err := kv.WatchTree(directory, s.stop)
	if err != nil {
		return nil, err
	}
	go func() {
		for pairs := range changes {
			s.set(pairs)
		}
	}()
	return s, nil
}

func (s *stored) set(pairs []*store.KVPair) {
	var servers []*client.KVPair
	for _, pair := range pairs {
		if name, ok := strings.CutPrefix(pair.Key, s.directory+"/"); ok {
			servers = append(servers, &client.KVPair{Key: name, Value: string(pair.Value)})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.servers = servers
	for _, told := range s.told {
		select {
		case told <- servers:
		default:
		}
	}
}

// GetServices returns those that are there.
func (s *stored) GetServices() []*client.KVPair {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.servers
}

// WatchService returns a channel on which every change is told.
func (s *stored) WatchService() chan []*client.KVPair {
	s.mu.Lock()
	defer s.mu.Unlock()
	told := make(chan []*client.KVPair, 10)
	s.told = append(s.told, told)
	return told
}

// RemoveWatcher and what follows is not used here.
func (s *stored) RemoveWatcher(chan []*client.KVPair) {}

// Clone returns itself: there is one service.
func (s *stored) Clone(string) (client.ServiceDiscovery, error) { return s, nil }

// SetFilter does nothing.
func (s *stored) SetFilter(client.ServiceDiscoveryFilter) {}

// Close ends the watch.
func (s *stored) Close() { close(s.stop) }
