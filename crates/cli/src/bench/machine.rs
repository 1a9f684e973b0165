//! Description of the machine that ran the benchmark.

use std::fmt;
use std::fs;
use std::thread;

use serde::Serialize;

/// This machine. Unavailable values are "unknown".
#[derive(Debug, Serialize)]
pub(super) struct Machine {
    cpu: String,
    cores: usize,
    kernel: String,
}

impl Machine {
    pub(super) fn here() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo.lines().find(|line| line.starts_with("model name"));
        let model = model.and_then(|line| line.split_once(':')).map(|(_, model)| model.trim().to_owned());
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease");
        Self {
            cpu: model.unwrap_or_else(unknown),
            cores: thread::available_parallelism().map_or(1, usize::from),
            kernel: kernel.map_or_else(|_| unknown(), |text| text.trim().to_owned()),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cores = if self.cores == 1 { "core" } else { "cores" };
        write!(f, "{}, {} {cores}, Linux {}", self.cpu, self.cores, self.kernel)
    }
}

fn unknown() -> String {
    "unknown".to_owned()
}
