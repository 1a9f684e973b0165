//! A generator that is stopped must notice.

use std::process::Child;
use std::thread;
use std::time::Duration;

use polyrpc_load::Verdict;
use rustix::process::Signal;
use serde_json::Value;

use super::check::Check;
use super::child::{Process, Server};
use crate::bench::INVALID;
use crate::failure::Failure;

/// Runs this command as a generator and stops it. It must report that its measurement is invalid.
pub(super) fn measure_stopped_generator(server: &Server) -> Result<Check, Failure> {
    let url = server.url();
    let arguments = [
        "bench",
        &url,
        "echo",
        "\"hello\"",
        "--rate",
        "1k",
        "--duration",
        "3s",
        "--warmup",
        "0s",
        "--json",
        "-",
    ];
    let generator = Child::start_command(&arguments)?;
    thread::sleep(Duration::from_millis(1_500));
    generator.signal(Signal::STOP)?;
    thread::sleep(Duration::from_millis(300));
    generator.signal(Signal::CONT)?;
    let output =
        generator.wait_with_output().map_err(|error| Failure::system("wait for the generator", &error))?;
    let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let measured = result["verdict"]["outcome"].as_str().unwrap_or("no result").to_owned();
    let expected =
        Verdict::GeneratorSaturated { lag_p99: Duration::ZERO, lag_max: Duration::ZERO, late: 0.0 };
    let is_code = output.status.code() == Some(i32::from(INVALID));
    Ok(Check {
        what: "verdict".to_owned(),
        expected: expected.name().to_owned(),
        passed: measured == expected.name() && is_code,
        measured,
    })
}
