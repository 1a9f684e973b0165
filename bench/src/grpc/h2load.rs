//! nghttp2's load tool: HTTP/2 requests with the body of a gRPC call.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::process::Command;

use buffa::Message;

use crate::proto::example::EchoRequest;

/// Number of requests on one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) in_flight: usize,
    /// Length of the echoed message.
    pub(super) payload: usize,
    pub(super) requests: u64,
}

impl Load {
    /// Runs h2load to its end; returns its requests per second.
    ///
    /// # Errors
    ///
    /// If it is not installed, or a single request failed.
    pub(super) fn run(self, server: SocketAddr) -> io::Result<f64> {
        let body = std::env::temp_dir().join(format!("polyrpc-bench-{}.body", std::process::id()));
        fs::write(&body, frame(self.payload))?;
        let output = Command::new("h2load")
            .args(["-c", "1", "-t", "1"])
            .args(["-n", &self.requests.to_string(), "-m", &self.in_flight.to_string()])
            .args(["-H", "content-type: application/grpc", "-H", "te: trailers"])
            .arg("-d")
            .arg(&body)
            .arg(format!("http://{server}/example.EchoService/Echo"))
            .output()
            .map_err(|error| io::Error::new(error.kind(), format!("h2load: {error} (nghttp2-client)")))?;
        fs::remove_file(&body)?;
        rate(&String::from_utf8_lossy(&output.stdout), self.requests)
    }
}

/// Reads the rate from what h2load printed.
///
/// # Errors
///
/// If not all requests succeeded.
pub(crate) fn rate(printed: &str, requests: u64) -> io::Result<f64> {
    let all = format!("{requests} succeeded, 0 failed");
    let rate = printed
        .lines()
        .find_map(|line| line.strip_prefix("finished in ")?.split(", ").nth(1)?.strip_suffix(" req/s"))
        .and_then(|rate| rate.parse().ok());
    match rate {
        Some(rate) if printed.contains(&all) => Ok(rate),
        _ => Err(io::Error::other(format!("h2load: {}", printed.replace('\n', " ")))),
    }
}

/// A message as gRPC frames it.
fn frame(payload: usize) -> Vec<u8> {
    let message = EchoRequest { message: "A".repeat(payload), ..Default::default() }.encode_to_vec();
    let mut body = vec![0];
    body.extend((message.len() as u32).to_be_bytes());
    body.extend(message);
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h2load_rate_is_accepted_only_if_every_request_succeeded() {
        let printed = "starting benchmark...\nfinished in 77.05ms, 259558.23 req/s, 13.85MB/s\n\
            requests: 20 total, 20 started, 20 done, 20 succeeded, 0 failed, 0 errored, 0 timeout\n";
        assert_eq!(rate(printed, 20).unwrap(), 259_558.23);
        rate(&printed.replace("20 succeeded, 0 failed", "19 succeeded, 1 failed"), 20).unwrap_err();
        rate("could not connect", 20).unwrap_err();
    }

    #[test]
    fn body_is_one_grpc_frame() {
        assert_eq!(frame(1), [0, 0, 0, 0, 3, 0x0a, 1, b'A']);
    }
}
