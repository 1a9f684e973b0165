//! A kind in a process of its own, whose CPU clock counts its calls only: a server, and its callers.
//!
//! Two programs contain this file: this one, and one with the allocator of the system. It uses nothing else of them.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use polyrpc::client::CallOptions;
use polyrpc::codec::{Body, Raw};
use polyrpc::layer::{Call, Layer, Next, Outcome};
use polyrpc::server::ServerHandle;
use polyrpc::service::ServiceBuilder;
use polyrpc::{Client, Code, Context, Format, Server, Status};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use super::kind::Kind;

/// Arguments of the process.
#[derive(Debug, Args)]
pub(crate) struct SubjectOptions {
    /// Kind of handler, or of runtime or allocator.
    #[arg(long, value_parser = Kind::from_name)]
    kind: Kind,
    /// Length of each window, in seconds.
    #[arg(long, default_value = "0.5", value_parser = parse_length)]
    seconds: Duration,
}

/// Result of a window.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Window {
    /// CPU time of a call in microseconds, client and server together.
    pub(crate) cpu_us: f64,
    pub(crate) calls: u64,
    /// Calls that ended in another way than they should.
    pub(crate) wrong: u64,
}

/// Main function of the process: prints that it is ready, then measures a window for each line on its standard input.
pub(crate) fn serve(options: &SubjectOptions) -> io::Result<()> {
    let subject = Subject::start(options.kind)?;
    print(&json!({}))?;
    for asked in io::stdin().lines() {
        asked?;
        print(&subject.window(options.seconds)?)?;
    }
    Ok(())
}

fn print(what: &impl Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, what)?;
    out.write_all(b"\n")?;
    out.flush()
}

fn parse_length(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.0..=3600.0).contains(seconds));
    let length = seconds.map(|seconds| Duration::from_secs_f64(seconds.max(0.01)));
    length.ok_or_else(|| "expected 0 to 3600 seconds".to_owned())
}

/// A running server with a client.
struct Subject {
    kind: Kind,
    client: Client,
    // Dropped in this order.
    _server: ServerHandle,
    runtime: Runtime,
}

/// Calls of all callers of a window.
#[derive(Debug)]
struct Tally {
    ends: Instant,
    calls: AtomicU64,
    wrong: AtomicU64,
}

impl Subject {
    fn start(kind: Kind) -> io::Result<Self> {
        let runtime = match kind {
            Kind::TwoThreads => Builder::new_multi_thread().worker_threads(2).enable_all().build(),
            _ => Builder::new_current_thread().enable_all().build(),
        }?;
        let mut server = Server::new().service(service(kind));
        if kind == Kind::ThreeLayers {
            server = server.layer(Passing).layer(Passing).layer(Passing);
        }
        let server =
            runtime.block_on(async { Ok::<_, io::Error>(server.bind("127.0.0.1:0").await?.start()) })?;
        let client = Client::new(&format!("grpc://{}", server.address()))
            .map_err(|error| io::Error::other(error.into_status()))?;
        Ok(Self { kind, client, _server: server, runtime })
    }

    /// Calls for a moment to warm up, then for the window.
    fn window(&self, window: Duration) -> io::Result<Window> {
        self.runtime.block_on(self.callers(WARM_UP))?;
        let before = cpu_time();
        let tally = self.runtime.block_on(self.callers(window))?;
        let spent = cpu_time() - before;
        let calls = tally.calls.load(Ordering::Relaxed);
        Ok(Window {
            cpu_us: spent.as_secs_f64() * 1e6 / calls as f64,
            calls,
            wrong: tally.wrong.load(Ordering::Relaxed),
        })
    }

    async fn callers(&self, window: Duration) -> io::Result<Arc<Tally>> {
        let tally = Arc::new(Tally {
            ends: Instant::now() + window,
            calls: AtomicU64::new(0),
            wrong: AtomicU64::new(0),
        });
        let caller = |_| tokio::spawn(call(self.kind, self.client.clone(), tally.clone()));
        let callers: Vec<_> = (0..CALLERS).map(caller).collect();
        for caller in callers {
            caller.await.map_err(io::Error::other)?;
        }
        Ok(tally)
    }
}

/// Calls until the window closes.
async fn call(kind: Kind, client: Client, tally: Arc<Tally>) {
    let body = Body::new(Format::Raw, Bytes::from_static(&[b'A'; PAYLOAD]));
    while Instant::now() < tally.ends {
        let ended = client.call_raw("Echo/Raw", body.clone(), CallOptions::default()).await;
        let is_right = match (kind, &ended) {
            (Kind::Failing, Err(error)) => {
                let status = error.status();
                status.code() == Code::NotFound && status.message() == REASON
            }
            (Kind::Failing, Ok(_)) | (_, Err(_)) => false,
            (_, Ok(reply)) => reply.message.bytes == body.bytes,
        };
        tally.calls.fetch_add(1, Ordering::Relaxed);
        tally.wrong.fetch_add(u64::from(!is_right), Ordering::Relaxed);
    }
}

fn service(kind: Kind) -> ServiceBuilder {
    let service = ServiceBuilder::new("Echo");
    match kind {
        Kind::Waiting => {
            service.method::<Raw, Bytes, Bytes, _, _>("Raw", |cx: Context, body: Bytes| async move {
                let (sender, receiver) = oneshot::channel();
                tokio::spawn(async move { sender.send(()) });
                let woken = receiver.await.map_err(|_| Status::internal("nobody woke the handler").into());
                (cx, woken.map(|()| body))
            })
        }
        Kind::Failing => service
            .method::<Raw, Bytes, Bytes, _, _>("Raw", |cx: Context, _: Bytes| async move {
                (cx, Err(Status::not_found(REASON).into()))
            }),
        _ => service.method::<Raw, Bytes, Bytes, _, _>("Raw", |cx: Context, body: Bytes| async move {
            (cx, Ok(body))
        }),
    }
}

/// A layer that looks at each call.
struct Passing;

impl Layer for Passing {
    async fn call(self: Arc<Self>, call: Call, next: Next) -> Outcome {
        let is_traced = call.metadata().get("traceparent").is_some();
        let outcome = next.call(call).await;
        std::hint::black_box(is_traced);
        outcome
    }
}

/// User and system CPU time of all threads of this process.
fn cpu_time() -> Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(spent.tv_sec.unsigned_abs(), spent.tv_nsec.unsigned_abs() as u32)
}

/// Number of callers of a kind.
pub(crate) const CALLERS: usize = 64;
/// Length in bytes of what they send.
pub(crate) const PAYLOAD: usize = 32;
const WARM_UP: Duration = Duration::from_millis(100);
const REASON: &str = "there is no such user";
