//go:build !zookeeper && !nacos

package main

var registries = map[string]registry{"consul": consul, "etcd": etcd, "redis": redis}
