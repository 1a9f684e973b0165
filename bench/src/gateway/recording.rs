//! Cost of a recorder for the thread that makes and answers calls: of one that records all calls, and of one that
//! records almost none.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use polyrpc::codec::Raw;
use polyrpc::layer::{Call, Layer, Next, Outcome};
use polyrpc::server::ServerHandle;
use polyrpc::service::ServiceBuilder;
use polyrpc::{Client, Context, Server};
use polyrpc_record::layer::{Recorder, RecorderStats};
use serde::Serialize;
use tokio::runtime::{Builder, Runtime};

use super::Options;
use crate::bar::{Bar, Limit};
use crate::load::{SharedLatencyRecorder, Tally, call_echo, to_io_error};
use crate::measure;
use crate::rounds::{Series, Spread, interleave};

/// Maximum cost of a recorded call on its thread, in microseconds.
const RECORDED: f64 = 1.5;

/// Maximum cost of a call that is not recorded.
const NOT_SAMPLED: f64 = 0.02;

/// With this share, recorded calls are so few that they cost nothing on average.
const SHARE: f64 = 1e-6;

/// In bytes: a window's calls, which the recorder's thread writes during the windows of the other servers.
const QUEUE: usize = 512 << 20;

const WINDOW: Duration = Duration::from_millis(300);

/// The server that is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    /// A layer does nothing.
    Plain,
    NotSampled,
    Recorded,
}

/// Result of a window.
#[derive(Debug, Serialize)]
struct Window {
    /// CPU time of the thread per call, in microseconds.
    cpu_us: f64,
    calls: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Measured {
    series: Vec<Series<Kind, Window>>,
    recorded: u64,
    /// Calls that were not recorded since the queue was full, or the disk.
    lost: u64,
}

pub(super) fn measure(options: &Options) -> io::Result<Option<Measured>> {
    if !options.is_chosen("recording") {
        return Ok(None);
    }
    eprintln!("measuring recording");
    let folder = std::env::temp_dir().join(format!("polyrpc-bench-{}-recording", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let measured = measure_in(&folder, options.rounds * 4);
    std::fs::remove_dir_all(&folder)?;
    measured.map(Some)
}

fn measure_in(folder: &Path, rounds: usize) -> io::Result<Measured> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let recorder = |share: f64, name: &str| {
        Recorder::options().sample_rate(share).queue(QUEUE).min_free(0).open(folder.join(name))
    };
    let (few, all) = (recorder(SHARE, "few.rec")?, recorder(1.0, "all.rec")?);
    let servers = [serve(&runtime, None)?, serve(&runtime, Some(&few))?, serve(&runtime, Some(&all))?];
    let clients = servers.each_ref().map(|server| Client::new(&format!("rpcx://{}", server.address())));
    let [plain, not_sampled, recorded] = clients;
    let (plain, not_sampled) = (plain.map_err(to_io_error)?, not_sampled.map_err(to_io_error)?);
    let recorded = recorded.map_err(to_io_error)?;
    let kinds = [Kind::Plain, Kind::NotSampled, Kind::Recorded];
    let series = interleave(rounds, &kinds, |kind| {
        let client = match kind {
            Kind::Plain => &plain,
            Kind::NotSampled => &not_sampled,
            Kind::Recorded => &recorded,
        };
        window(&runtime, client)
    });
    all.close();
    let RecorderStats { recorded, queue_full, not_written, .. } = all.stats();
    Ok(Measured { series, recorded, lost: queue_full + not_written })
}

fn serve(runtime: &Runtime, recorder: Option<&Recorder>) -> io::Result<ServerHandle> {
    let echo = |cx: Context, body: Bytes| std::future::ready((cx, Ok(body)));
    let service = ServiceBuilder::new("Echo").method::<Raw, Bytes, Bytes, _, _>("Raw", echo);
    let server = Server::new().service(service);
    let server = match recorder {
        // The cost of any layer is not the recorder's.
        None => server.layer(Nothing),
        Some(recorder) => server.layer(recorder.clone()),
    };
    runtime.block_on(async { Ok(server.bind("127.0.0.1:0").await?.start()) })
}

/// A layer that does nothing.
#[derive(Clone, Copy)]
struct Nothing;

impl Layer for Nothing {
    async fn call(self: Arc<Self>, call: Call, next: Next) -> Outcome {
        next.call(call).await
    }
}

fn window(runtime: &Runtime, client: &Client) -> io::Result<Window> {
    runtime.block_on(call_echo(client, &SharedLatencyRecorder::start(Duration::from_millis(50))))?;
    let latencies = SharedLatencyRecorder::start(WINDOW);
    let before = measure::thread_cpu_time();
    runtime.block_on(call_echo(client, &latencies))?;
    let spent = measure::thread_cpu_time() - before;
    let Tally { calls, errors, .. } = latencies.finish();
    match errors {
        0 => Ok(Window { cpu_us: spent.as_secs_f64() * 1e6 / calls as f64, calls }),
        _ => Err(io::Error::other(format!("{errors} wrong replies of {calls}"))),
    }
}

impl Measured {
    /// Additional cost of a server over the plain one, within each round.
    fn more(&self, kind: Kind) -> Option<Spread> {
        let series = |kind| self.series.iter().find(|series| series.subject == kind);
        let pairs = series(kind)?.rounds.iter().zip(&series(Kind::Plain)?.rounds);
        Spread::from_figures(
            pairs.filter_map(|(own, plain)| Some(own.as_ref().ok()?.cpu_us - plain.as_ref().ok()?.cpu_us)),
        )
    }

    pub(super) fn bars(&self) -> Vec<Bar> {
        // A call that is lost costs less than one that is recorded.
        let clean = self.lost * 100 <= self.recorded
            && self.series.iter().all(|series| series.rounds.iter().all(Result::is_ok));
        let bar = |name: &str, kind, limit| Bar {
            name: format!("gateway_recording_{name}"),
            value: self.more(kind).map(|more| more.median),
            limit: Limit::CpuAtMost(limit),
            clean,
        };
        vec![bar("recorded", Kind::Recorded, RECORDED), bar("not_sampled", Kind::NotSampled, NOT_SAMPLED)]
    }

    pub(super) fn print(&self) {
        println!(
            "\nrecording: CPU µs a call, client and server on one thread ({} recorded, {} lost)",
            self.recorded, self.lost
        );
        for series in &self.series {
            if let Some(Spread { median, min, max }) = series.spread(|window| window.cpu_us) {
                println!("{:<11} {median:>7.3} ({min:.3}–{max:.3})", format!("{:?}", series.subject));
            }
        }
    }
}
