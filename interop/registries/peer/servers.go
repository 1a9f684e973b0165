//go:build !zookeeper

package main

import (
	"sync"

	"github.com/smallnest/rpcx/client"
)

// servers are the discovered servers of a service: the minimum that rpcx requires of its registry clients. Those are
// separate modules, and not all of them are available from the Go proxy.
type servers struct {
	mu    sync.Mutex
	pairs []*client.KVPair
	told  []chan []*client.KVPair
}

func (s *servers) set(pairs []*client.KVPair) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pairs = pairs
	for _, told := range s.told {
		select {
		case told <- pairs:
		default:
		}
	}
}

// GetServices returns the current servers.
func (s *servers) GetServices() []*client.KVPair {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pairs
}

// WatchService returns a channel with every change.
func (s *servers) WatchService() chan []*client.KVPair {
	s.mu.Lock()
	defer s.mu.Unlock()
	told := make(chan []*client.KVPair, 10)
	s.told = append(s.told, told)
	return told
}

// RemoveWatcher and the following methods are not used here.
func (s *servers) RemoveWatcher(chan []*client.KVPair) {}

// Clone returns itself: there is one service.
func (s *servers) Clone(string) (client.ServiceDiscovery, error) { return s, nil }

// SetFilter does nothing.
func (s *servers) SetFilter(client.ServiceDiscoveryFilter) {}

// Close does nothing: the watch ends with the program.
func (s *servers) Close() {}
