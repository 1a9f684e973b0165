use std::time::{Duration, Instant};

use polyrpc::layers::{Metrics, current_polls, label_stacks};

use super::samples::{RawStack, Samples};
use crate::stalls;

/// Samples the running polls of all threads, `frequency` times per second, for a duration.
fn sample_polls(samples: &mut Samples, duration: Duration, frequency: u32, metrics: &[Metrics]) {
    let began = Instant::now();
    let pause = Duration::from_secs(1) / frequency.max(1);
    while began.elapsed() < duration {
        std::thread::sleep(pause.min(duration));
        samples.sampling_rounds += 1;
        for poll in current_polls() {
            if let Some(call) = metrics.iter().find_map(|metrics| metrics.call_of_poll(&poll)) {
                *samples.methods.entry(stalls::name(&call)).or_default() += 1;
            }
        }
    }
    samples.took = began.elapsed();
}

/// Samples the process for some time. Blocks its thread.
///
/// # Errors
///
/// If the process cannot be sampled.
#[cfg(all(
    any(target_os = "linux", target_os = "macos"),
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
pub(super) fn sample(duration: Duration, frequency: u32, metrics: &[Metrics]) -> Result<Samples, String> {
    let frequency_hz = i32::try_from(frequency).unwrap_or(i32::MAX);
    let guard = rpprof::ProfilerGuardBuilder::default().frequency(frequency_hz).build();
    let guard = guard.map_err(|error| format!("cannot sample this process: {error}"))?;
    let mut samples = Samples::default();
    let labels = label_stacks();
    sample_polls(&mut samples, duration, frequency, metrics);
    drop(labels);
    // Addresses only: resolving them takes long, and the profiler's lock is held meanwhile.
    let report = guard.report().build_unresolved();
    drop(guard);
    let report = report.map_err(|error| format!("cannot read the samples: {error}"))?;
    samples.missed = report.missed_samples;
    for (frames, count) in report.data {
        let name = frames.thread_name.get(..frames.thread_name_length).unwrap_or_default();
        let count = u64::try_from(count).unwrap_or_default();
        samples.stacks.push(RawStack {
            addresses: frames.frames.iter().map(|frame| frame.ip).collect(),
            thread: String::from_utf8_lossy(name).into_owned(),
            count,
            weight: count,
            location: None,
        });
    }
    Ok(samples)
}

#[cfg(not(all(
    any(target_os = "linux", target_os = "macos"),
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
pub(super) fn sample(_: Duration, _: u32, _: &[Metrics]) -> Result<Samples, String> {
    Err("this platform has no profiler".to_owned())
}
