//! `stream`: a number of MiB through one stream, to an echo server and to a slow reader.
//!
//! Only flow control limits the data in flight: in the server, which receives more than it can
//! send, and in the client, whose requests could all be created at once. Both are separate processes, whose
//! resident memory the parent reads.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Args;
use polyrpc::{Client, Cores, Result, Server, Streaming};
use serde::{Deserialize, Serialize};
use tokio::runtime::Builder;

use crate::bar::{Bar, Limit};
use crate::load::to_io_error;
use crate::measure;
use crate::process::{self, Child, Listening, Ready};
use crate::report::{self, Machine};
use crate::run::REPORT_TIMEOUT;

/// Maximum memory of a process for one stream: what its settings allow, and as much again for the reads that
/// messages are slices of, and for the allocator's reserve.
const LIMIT_KIB: u64 = 2 * (WINDOW_KIB + UNSENT_KIB);

/// Maximum unread data of a stream: the HTTP/2 setting `max_window`.
const WINDOW_KIB: u64 = 4 << 10;

/// Maximum unsent data: `Limits::unsent_per_connection`.
const UNSENT_KIB: u64 = 4 << 10;

/// Options of the measurement.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of MiB in each direction.
    #[arg(long, default_value_t = 1024)]
    mib: u64,
}

/// The scheme of the stream's protocol.
const PROTOCOLS: [&str; 2] = ["grpc", "baidu-std"];

/// Measures, prints and checks the bars.
pub(crate) fn run(options: &Options) -> io::Result<ExitCode> {
    let machine = Machine::current();
    let command: Vec<_> = std::env::args().collect();
    let method = format!(
        "{} MiB each way in messages of {} KiB; {} MiB are read at a time, then none for {PAUSE:?}; loopback",
        options.mib,
        PIECE >> 10,
        (BURST * PIECE) >> 20
    );
    report::print_conditions(&machine, &command, &method);
    let mut all_ok = true;
    for protocol in PROTOCOLS {
        let bars = evaluate(protocol, options.mib, &measure(protocol, options.mib)?);
        bars.iter().for_each(|bar| println!("{bar}"));
        all_ok &= bars.iter().all(Bar::is_ok);
    }
    Ok(if all_ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn evaluate(protocol: &str, mib: u64, measured: &Measurement) -> [Bar; 2] {
    let Measurement { carried, server, client } = measured;
    let seconds = carried.nanoseconds as f64 / 1e9;
    println!();
    println!(
        "{protocol:<9} {} messages in {seconds:.1} s, {:.0} MiB/s",
        carried.pieces,
        mib as f64 / seconds
    );
    println!("settings  {WINDOW_KIB} KiB of window on the stream, {UNSENT_KIB} KiB unsent");
    for (name, Resident { before, most }) in [("server", server), ("client", client)] {
        println!("{name}    {before} KiB resident before, {most} KiB at most");
    }
    println!();
    // The first of them existed before there were others.
    let by = if protocol == "grpc" { String::new() } else { protocol.replace('-', "_") + "_" };
    let bar = |name: &str, resident: &Resident| Bar {
        name: format!("stream_{mib}_mib_{by}{name}_memory"),
        value: Some(resident.most.saturating_sub(resident.before) as f64),
        limit: Limit::KibAtMost(LIMIT_KIB as f64),
        clean: carried.pieces == pieces(mib) && carried.in_order,
    };
    [bar("server", server), bar("client", client)]
}

struct Measurement {
    carried: EchoedBytes,
    server: Resident,
    client: Resident,
}

/// The resident memory of a process in KiB.
struct Resident {
    before: u64,
    most: u64,
}

fn measure(protocol: &str, mib: u64) -> io::Result<Measurement> {
    let server = Child::start(&["stream-server".to_owned()])?;
    let Listening { address } = server.read_report(REPORT_TIMEOUT)?;
    let client = [
        "stream-client".to_owned(),
        format!("--protocol={protocol}"),
        format!("--connect={address}"),
        format!("--mib={mib}"),
    ];
    let mut client = Child::start(&client)?;
    let Ready {} = client.read_report(REPORT_TIMEOUT)?;

    let server_before = measure::resident_kib_of(server.id())?;
    let client_before = measure::resident_kib_of(client.id())?;
    client.send_go()?;
    // Waits for a reader even if it is ten times slower than intended.
    let carried = client.read_report(REPORT_TIMEOUT + Duration::from_millis(mib * 1000 / 16))?;
    let resident = |before, process: &Child| {
        Ok::<_, io::Error>(Resident { before, most: measure::peak_resident_kib_of(process.id())? })
    };
    Ok(Measurement {
        carried,
        server: resident(server_before, &server)?,
        client: resident(client_before, &client)?,
    })
}

#[polyrpc::service(name = "bench.Pipe", codec = polyrpc::codec::Raw)]
trait Pipe {
    /// Echoes messages.
    async fn through(&self, pieces: Streaming<Bytes>) -> Result<Streaming<Bytes>>;
}

struct Echo;

impl Pipe for Echo {
    async fn through(&self, pieces: Streaming<Bytes>) -> Result<Streaming<Bytes>> {
        Ok(pieces)
    }
}

/// Main function of the server's process.
pub(crate) fn serve() -> io::Result<()> {
    let cores = Cores::start(1)?;
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let server = Server::new().executor(cores).service(PipeServer::new(Echo));
    let bound = runtime.block_on(server.bind("127.0.0.1:0"))?;
    let address = bound.address().to_string().parse().map_err(io::Error::other)?;
    runtime.spawn(bound.run());
    process::report_usage(address)
}

/// Arguments of the client.
#[derive(Debug, Args)]
pub(crate) struct ClientOptions {
    /// The scheme of the stream's protocol.
    #[arg(long, default_value = "grpc")]
    protocol: String,
    /// The server to call.
    #[arg(long)]
    connect: SocketAddr,
    /// Number of MiB to send.
    #[arg(long)]
    mib: u64,
}

/// Main function of the client's process.
pub(crate) fn call(options: &ClientOptions) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let client = Client::new(&format!("{}://{}", options.protocol, options.connect)).map_err(to_io_error)?;
    let pipe = PipeClient::new(client);
    runtime.block_on(carry(&pipe, 1)).map_err(to_io_error)?;
    process::write_report(&Ready {})?;
    let mut told = io::stdin().lines();
    if told.next().transpose()?.is_some() {
        process::write_report(&runtime.block_on(carry(&pipe, pieces(options.mib))).map_err(to_io_error)?)?;
    }
    told.try_for_each(|line| line.map(drop))
}

/// The echoed bytes.
#[derive(Debug, Serialize, Deserialize)]
struct EchoedBytes {
    pieces: u64,
    in_order: bool,
    nanoseconds: u64,
}

/// Length of a message.
const PIECE: u64 = 64 << 10;

fn pieces(mib: u64) -> u64 {
    (mib << 20) / PIECE
}

/// Number of messages read before a pause, and its length: at most 160 MiB/s.
const BURST: u64 = 128;
const PAUSE: Duration = Duration::from_millis(50);

async fn carry(pipe: &PipeClient, pieces: u64) -> Result<EchoedBytes> {
    let began = Instant::now();
    let mut back = pipe.through(Streaming::from_iter((0..pieces).map(piece))).await?;
    let (mut came, mut in_order) = (0, true);
    while let Some(message) = back.message().await? {
        in_order &= message == piece(came);
        came += 1;
        if came == pieces {
            // Not every protocol supports half-close.
            break;
        }
        if came.is_multiple_of(BURST) {
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(EchoedBytes { pieces: came, in_order, nanoseconds: began.elapsed().as_nanos() as u64 })
}

/// A message that contains its number.
fn piece(number: u64) -> Bytes {
    let mut bytes = vec![0; PIECE as usize];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    bytes.into()
}
