module github.com/polyrpc/polyrpc/interop/net_rpc

go 1.24.0

require github.com/hashicorp/net-rpc-msgpackrpc/v2 v2.0.0

require (
	github.com/hashicorp/errwrap v1.0.0 // indirect
	github.com/hashicorp/go-msgpack/v2 v2.0.0 // indirect
	github.com/hashicorp/go-multierror v1.1.1 // indirect
)
