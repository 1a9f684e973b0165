//! Services of a server by its reflection: rpcx's, and the trace of gRPC's.

pub(crate) mod rpcx;
mod trace;
mod url;

pub(crate) use polyrpc_transform::Reflection;

pub(crate) use trace::Trace;
pub(crate) use url::grpc_url;
