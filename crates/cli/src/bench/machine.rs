//! Description of the machine that ran the benchmark.

use std::fmt;
use std::fs;
use std::thread;

use polyrpc_bench_report::model;

/// This machine. Unavailable values are "unknown".
#[derive(Debug)]
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

impl Machine {
    pub(super) fn cores(&self) -> usize {
        self.cores
    }

    /// With what matters only in a stored result.
    pub(super) fn to_document(&self) -> model::Machine {
        let read = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
        model::Machine {
            cpu: Some(self.cpu.clone()),
            cores: self.cores as u64,
            system: Some(format!("Linux {}", self.kernel)),
            is_virtual: flags.map(|flags| flags.contains(" hypervisor")),
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            load_average: read("/proc/loadavg"),
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
