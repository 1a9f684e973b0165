//! `core`: an echo over baidu_std with protobuf and over rpcx with raw bytes, compared with the floor.

use crate::bar::Limit;
use crate::case::{Case, QuietCase};
use crate::exchange::Protocol::{self, BaiduStd, Rpcx};
use crate::idle::Quiet;
use crate::run::{Placement, Workload};
use crate::subject::Shape;
use crate::suite::Suite;

/// The bars of the core.
pub(crate) const SUITE: Suite = Suite { cases: &CASES, quiet_cases: &QUIET_CASES };

const CASES: [Case; 14] = [
    blocking("blocking_32_baidu_std", BaiduStd, 32, 0.70),
    blocking("blocking_32_rpcx", Rpcx, 32, 0.70),
    blocking("blocking_1k_baidu_std", BaiduStd, 1024, 0.70),
    blocking("blocking_1k_rpcx", Rpcx, 1024, 0.70),
    blocking("blocking_64k_protobuf", BaiduStd, 65536, 0.60),
    blocking("blocking_64k_raw", Rpcx, 65536, 0.75),
    on_one_connection("shared64_32_baidu_std", BaiduStd, 32, Shape::Shared(64), 2.2),
    on_one_connection("shared64_32_rpcx", Rpcx, 32, Shape::Shared(64), 2.2),
    on_one_connection("shared64_1k_baidu_std", BaiduStd, 1024, Shape::Shared(64), 3.0),
    on_one_connection("shared64_1k_rpcx", Rpcx, 1024, Shape::Shared(64), 3.0),
    on_one_connection("outstanding1000_32_baidu_std", BaiduStd, 32, Shape::Outstanding(1000), 1.6),
    on_one_connection("outstanding1000_32_rpcx", Rpcx, 32, Shape::Outstanding(1000), 1.6),
    on_20_connections("conns20_1k_baidu_std", BaiduStd, 1024, 0.80),
    on_20_connections("conns20_1k_rpcx", Rpcx, 1024, 0.80),
];

const QUIET_CASES: [QuietCase; 3] = [
    quiet("idle_connection_silent", BaiduStd, Shape::Silent(10_000)),
    quiet("idle_connection_baidu_std", BaiduStd, Shape::Idle(10_000)),
    quiet("idle_connection_rpcx", Rpcx, Shape::Idle(10_000)),
];

const fn blocking(name: &'static str, protocol: Protocol, payload: usize, ratio: f64) -> Case {
    let workload = Workload { protocol, payload, shape: Shape::Blocking, placement: Placement::OneCore };
    Case { name, workload, limit: Limit::RatioAtLeast(ratio) }
}

const fn on_one_connection(
    name: &'static str,
    protocol: Protocol,
    payload: usize,
    shape: Shape,
    cpu_ratio: f64,
) -> Case {
    let workload = Workload { protocol, payload, shape, placement: Placement::Free };
    Case { name, workload, limit: Limit::RatioAtMost(cpu_ratio) }
}

const fn on_20_connections(name: &'static str, protocol: Protocol, payload: usize, ratio: f64) -> Case {
    let shape = Shape::Connections(20);
    let workload = Workload { protocol, payload, shape, placement: Placement::Free };
    Case { name, workload, limit: Limit::RatioAtLeast(ratio) }
}

const fn quiet(name: &'static str, protocol: Protocol, shape: Shape) -> QuietCase {
    QuietCase { name, quiet: Quiet { protocol, shape }, limit: Limit::KibAtMost(4.0) }
}
