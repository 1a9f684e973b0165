//go:build !zookeeper

package main

var registries = map[string]registry{"etcd": etcd, "redis": redis}
