//! Our load client: callers in closed loops or paced, on any number of connections, all on one thread.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use buffa::Message;
use polyrpc::Client;
use polyrpc::client::Request;
use tokio::runtime::Builder;
use tokio::time::{Instant as TokioInstant, interval_at};

use super::peer::file;
use super::task::{ClientOptions, ConnectReport, Method};
use crate::load::{SharedLatencyRecorder, Tally, to_io_error};
use crate::measure;
use crate::process::{self, Done};
use crate::proto::example::{EchoRequest, EchoServiceClient};
use crate::proto::helloworld::{GreeterClient, HelloRequest};
use crate::proto::pb::{BenchmarkMessage, HelloClient};

/// Main function of the client's process.
pub(crate) fn call(options: &ClientOptions) -> io::Result<()> {
    process::prepare(None)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let began = Instant::now();
    let callers = runtime.block_on(connect(options))?;
    let took_ns = began.elapsed().as_nanos() as u64;
    if options.warm_up > 0 {
        runtime.block_on(load(&callers, options, Duration::from_millis(options.warm_up), None))?;
    }
    process::write_report(&ConnectReport { took_ns })?;

    let mut told = io::stdin().lines();
    if told.next().transpose()?.is_some() {
        let before = measure::cpu_time();
        let window = Duration::from_millis(options.window);
        let tally = runtime.block_on(load(&callers, options, window, options.calls))?;
        let cpu_ns = (measure::cpu_time() - before).as_nanos() as u64;
        process::write_report(&Done { cpu_ns, tally })?;
    }
    told.try_for_each(|line| line.map(drop))
}

/// Opens the connections, some at a time, and makes a call on each.
async fn connect(options: &ClientOptions) -> io::Result<Vec<Caller>> {
    const AT_ONCE: usize = 100;
    let mut callers = Vec::with_capacity(options.connections);
    while callers.len() < options.connections {
        let some = (options.connections - callers.len()).min(AT_ONCE);
        let opening: Vec<_> = (0..some)
            .map(|_| {
                let caller = Caller::new(options);
                tokio::spawn(async move {
                    let caller = caller?;
                    match caller.call().await.map_err(to_io_error)? {
                        true => Ok(caller),
                        false => Err(io::Error::other("the first reply is wrong")),
                    }
                })
            })
            .collect();
        for opened in opening {
            callers.push(opened.await.map_err(io::Error::other)??);
        }
    }
    Ok(callers)
}

/// Runs every connection's callers until the window is over or all `calls` are made.
async fn load(
    connections: &[Caller],
    options: &ClientOptions,
    window: Duration,
    calls: Option<usize>,
) -> io::Result<Tally> {
    let latencies = SharedLatencyRecorder::start(window);
    let share = calls.map(|calls| calls / (connections.len() * options.callers));
    let tasks: Vec<_> = connections
        .iter()
        .flat_map(|caller| std::iter::repeat_n(caller, options.callers))
        .map(|caller| {
            let (caller, latencies) = (caller.clone(), latencies.clone());
            match (share, options.every) {
                (Some(share), _) => tokio::spawn(async move { caller.call_times(share, latencies).await }),
                (None, 0) => tokio::spawn(async move { caller.call_on(latencies).await }),
                (None, every) => {
                    let every = Duration::from_micros(every);
                    tokio::spawn(async move { caller.call_every(every, latencies).await })
                }
            }
        })
        .collect();
    for task in tasks {
        task.await.map_err(io::Error::other)?.map_err(to_io_error)?;
    }
    Ok(latencies.finish())
}

/// One connection, and its method.
#[derive(Clone)]
enum Caller {
    Echo(EchoServiceClient, EchoRequest),
    Tagged(EchoServiceClient, EchoRequest, Arc<Tags>),
    Hello(GreeterClient, HelloRequest),
    Say(HelloClient, Box<BenchmarkMessage>),
}

impl Caller {
    fn new(options: &ClientOptions) -> io::Result<Self> {
        let client = Client::new(&format!("grpc://{}", options.connect)).map_err(to_io_error)?;
        Ok(match options.method {
            Method::Echo => {
                let message = "A".repeat(options.payload);
                let (stub, request) =
                    (EchoServiceClient::new(client), EchoRequest { message, ..Default::default() });
                match options.metadata {
                    0 => Self::Echo(stub, request),
                    _ => Self::Tagged(stub, request, Arc::new(Tags::new(options))),
                }
            }
            Method::Hello => {
                let request = HelloRequest { name: "Joe".into(), ..Default::default() };
                Self::Hello(GreeterClient::new(client), request)
            }
            Method::Say => {
                let bytes = fs::read(file("vectors/benchmark_message_581.bin"))?;
                let message = BenchmarkMessage::decode_from_slice(&bytes).map_err(io::Error::other)?;
                Self::Say(HelloClient::new(client), Box::new(message))
            }
        })
    }

    /// Makes one call; returns whether its reply is correct.
    async fn call(&self) -> polyrpc::Result<bool> {
        Ok(match self {
            Self::Echo(stub, request) => stub.echo(request.clone()).await?.message == request.message,
            Self::Tagged(stub, request, tags) => {
                let tagged = tags.add_to(request.clone());
                stub.echo_with(tagged).await?.message.message == request.message
            }
            Self::Hello(stub, request) => stub.say_hello(request.clone()).await?.message == "Hello Joe",
            Self::Say(stub, message) => stub.say((**message).clone()).await?.field1 == "OK",
        })
    }

    async fn call_on(&self, latencies: SharedLatencyRecorder) -> polyrpc::Result<()> {
        let mut began = latencies.started();
        while latencies.is_open_at(began) {
            let right = self.call().await?;
            began = latencies.record_call(began, right);
        }
        Ok(())
    }

    async fn call_times(&self, times: usize, latencies: SharedLatencyRecorder) -> polyrpc::Result<()> {
        let mut began = latencies.started();
        for _ in 0..times {
            let right = self.call().await?;
            began = latencies.record_call(began, right);
        }
        Ok(())
    }

    /// Latency counts from the actual start of a call: late timers are not the server's fault.
    async fn call_every(&self, every: Duration, latencies: SharedLatencyRecorder) -> polyrpc::Result<()> {
        let mut ticks = interval_at(TokioInstant::now() + every, every);
        loop {
            ticks.tick().await;
            let began = Instant::now();
            if !latencies.is_open_at(began) {
                return Ok(());
            }
            let right = self.call().await?;
            latencies.record_call(began, right);
        }
    }
}

/// Metadata of calls: names that stay, with values of 32 hexadecimal digits, like the id of a trace.
struct Tags {
    names: Vec<String>,
    is_same: bool,
    /// Number of values so far.
    next: AtomicU64,
}

impl Tags {
    fn new(options: &ClientOptions) -> Self {
        let names = (0..options.metadata).map(|n| format!("x-meta-{n}")).collect();
        Self { names, is_same: options.same, next: AtomicU64::new(0) }
    }

    fn add_to(&self, message: EchoRequest) -> Request<EchoRequest> {
        let mut request = Request::new(message);
        for (name, n) in self.names.iter().zip(0..) {
            let number = if self.is_same { n } else { self.next.fetch_add(1, Ordering::Relaxed) };
            // Digits that look random (the multiplier of Knuth's linear congruential generator).
            let value = (u128::from(number) + 1).wrapping_mul(0x5851_f42d_4c95_7f2d_1405_7b7e_f767_814f);
            request.options.metadata.append(name.clone(), format!("{value:032x}"));
        }
        request
    }
}
