use std::collections::BTreeMap;
use std::panic::Location;
use std::time::Duration;

use super::kind::ProfileKind;
use super::symbols::{self, Symbol};

/// Samples of the process: addresses, and what threads were polling.
#[derive(Debug, Default)]
pub(super) struct Samples {
    pub(super) stacks: Vec<RawStack>,
    /// Samples that were lost, since another thread was being sampled.
    pub(super) missed: u64,
    /// The methods whose handlers were being polled at regular times, and how often.
    pub(super) methods: BTreeMap<String, u64>,
    /// How often the threads were checked.
    pub(super) sampling_rounds: u64,
    pub(super) took: Duration,
}

/// A stack that was sampled.
#[derive(Debug)]
pub(super) struct RawStack {
    /// Addresses of instructions, the innermost first.
    pub(super) addresses: Vec<usize>,
    pub(super) thread: String,
    pub(super) count: u64,
    pub(super) weight: u64,
    /// The location of the lock that was waited for.
    pub(super) location: Option<&'static Location<'static>>,
}

impl RawStack {
    /// Returns its functions, the innermost first.
    pub(super) fn symbols(&self, kind: ProfileKind) -> Vec<Symbol> {
        // An address to return to is one past the call. A signal interrupts the innermost function where it is.
        let exact = usize::from(kind == ProfileKind::Cpu);
        let address = |(at, address): (usize, &usize)| address - usize::from(at >= exact && *address > 0);
        let mut symbols: Vec<_> =
            self.addresses.iter().enumerate().map(address).flat_map(symbols::resolve).collect();
        if let Some(location) = self.location {
            // The frames of the lock and the tracer are omitted.
            let is_own = |symbol: &Symbol| {
                let name = &symbol.name;
                name.contains("polyrpc::contention::Mutex")
                    && (name.ends_with("::lock") || name.ends_with("::wait"))
            };
            let own = symbols.iter().rposition(is_own);
            symbols.drain(..own.map_or(0, |own| own + 1));
            symbols.insert(0, Symbol::from_lock(location));
        }
        symbols
    }
}
