//! Servers in the test's process, with services that `polyrpc serve` does not have.

use bytes::Bytes;
use polyrpc::codec::{Raw, Serde};
use polyrpc::server::Listen;
use polyrpc::service::ServiceBuilder;
use polyrpc::{Compression, Context, Metadata, Push, Result, Server, Status};
use polyrpc_cli::proto::example::{EchoRequest, EchoResponse, EchoService};
use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Runtime};

/// A server that stops when it is dropped.
pub(crate) struct Local {
    address: String,
    _runtime: Runtime,
}

impl Local {
    /// Serves on a free port.
    pub(crate) fn serve(server: Server) -> Self {
        Self::listen(server, |listen| listen)
    }

    /// Serves on a free port with an adapted listener.
    pub(crate) fn listen(server: Server, adapt: impl FnOnce(Listen) -> Listen) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let bound = runtime.block_on(server.bind(adapt(Listen::on("127.0.0.1:0")))).unwrap();
        let address = bound.address().to_string();
        runtime.spawn(bound.run());
        Self { address, _runtime: runtime }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn url(&self, scheme: &str) -> String {
        crate::running::url_of(scheme, &self.address)
    }
}

/// A service with one method, which returns the bytes of the request.
pub(crate) fn raw(service: &str, method: &str) -> ServiceBuilder {
    ServiceBuilder::new(service)
        .method::<Raw, Bytes, Bytes, _, _>(method, |cx: Context, bytes: Bytes| async { (cx, Ok(bytes)) })
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Args {
    a: i64,
    b: i64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Reply {
    c: i64,
}

/// `Arith/Meta` returns the request's metadata `k1` as `echo`; `Arith/Push` pushes a message before it replies.
pub(crate) fn arith() -> ServiceBuilder {
    ServiceBuilder::new("Arith")
        .method::<Serde, _, _, _, _>("Meta", meta)
        .method::<Serde, _, _, _, _>("Push", push)
}

async fn meta(mut cx: Context, args: Args) -> (Context, Result<Reply>) {
    let value = cx.metadata().bytes("k1").cloned().unwrap_or_default();
    cx.reply_options().metadata.insert("echo", value);
    (cx, Ok(Reply { c: args.a * args.b }))
}

async fn push(cx: Context, _: Args) -> (Context, Result<Reply>) {
    let pushed = cx.pusher().push(Push {
        service: "push_path".into(),
        method: "push_method".into(),
        metadata: Metadata::from_iter([("pk", "pv")]),
        body: "abcde".into(),
    });
    (cx, pushed.map(|()| Reply { c: 1 }).map_err(Into::into))
}

/// Compresses the reply as the first word of the message says; `fail-code` fails with a number.
pub(crate) struct Echo;

impl EchoService for Echo {
    async fn echo(&self, cx: &mut Context, request: EchoRequest) -> Result<EchoResponse> {
        let compression = match request.message.split(' ').next() {
            Some("fail-code") => Err(Status::internal("custom error").with_number(54321))?,
            Some("gzip") => Compression::Gzip,
            Some("zlib") => Compression::Zlib,
            Some("snappy") => Compression::Snappy,
            _ => Compression::None,
        };
        cx.reply_options().compression = compression;
        Ok(EchoResponse { message: request.message, ..EchoResponse::default() })
    }
}
