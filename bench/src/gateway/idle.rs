//! Memory of connections that made one call and are idle.

use std::io;
use std::thread;
use std::time::Duration;

use serde::Serialize;

use super::Options;
use super::proxy::{Input, Proxy, Running};
use crate::bar::{Bar, Limit};
use crate::grpc::{ClientOptions, GrpcServer};

/// Maximum resident memory per connection in KiB.
const KIB: f64 = 8.0;

/// Growth in KiB that counts as none: the system counts pages late, and programs keep statistics.
const NOISE: u64 = 64;

/// Growth of each proxy per connection.
#[derive(Debug, Serialize)]
pub(super) struct Measured {
    connections: usize,
    kib: Vec<(Proxy, Result<f64, String>)>,
}

pub(super) fn measure(options: &Options) -> Option<Measured> {
    if !options.is_chosen("idle") {
        return None;
    }
    eprintln!("measuring idle");
    let proxies = options.proxies().into_iter().filter(|proxy| *proxy != Proxy::Direct);
    let growth = |proxy| measure_growth(proxy, options.connections).map_err(|error| error.to_string());
    let kib = proxies.map(|proxy| (proxy, growth(proxy)));
    Some(Measured { connections: options.connections, kib: kib.collect() })
}

fn measure_growth(proxy: Proxy, connections: usize) -> io::Result<f64> {
    let upstream = GrpcServer::start()?;
    let running = proxy.start(Input::Grpc, upstream.address)?;
    let usual = ClientOptions { warm_up: 0, ..ClientOptions::echo(running.address) };
    // One call, so that one-time setup is not attributed to a connection.
    drop(usual.start()?);
    let before = wait_until_stable(&running)?;
    let (_client, _) = ClientOptions { connections, ..usual }.start()?;
    let grown = wait_until_stable(&running)?.saturating_sub(before);
    Ok(grown as f64 / connections as f64)
}

/// Waits until the memory hardly changes for half a second.
fn wait_until_stable(running: &Running) -> io::Result<u64> {
    let (mut last, mut quiet) = (running.resident_kib()?, 0);
    for _ in 0..80 {
        thread::sleep(Duration::from_millis(250));
        let now = running.resident_kib()?;
        quiet = if now.abs_diff(last) <= NOISE { quiet + 1 } else { 0 };
        if quiet == 2 {
            return Ok(now);
        }
        last = now;
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, "the proxy does not come to rest"))
}

impl Measured {
    pub(super) fn bar(&self) -> Bar {
        let own = self.kib.iter().find(|(proxy, _)| *proxy == Proxy::Polyrpc);
        let value = own.and_then(|(_, kib)| kib.as_ref().ok().copied());
        Bar {
            name: "gateway_idle_connection".to_owned(),
            value,
            limit: Limit::KibAtMost(KIB),
            clean: value.is_some(),
        }
    }

    pub(super) fn print(&self) {
        println!("\n{} idle connections: KiB resident each", self.connections);
        for (proxy, kib) in &self.kib {
            match kib {
                Ok(kib) => println!("{:<9} {kib:>8.1}", proxy.as_str()),
                Err(error) => println!("{:<9} SKIPPED: {error}", proxy.as_str()),
            }
        }
    }
}
