//! Copies the modules under test, with loom's locks and atomics instead of the standard ones: the library itself has no trace
//! of loom.

use std::path::Path;
use std::{env, fs};

/// Modules of `crates/polyrpc/src`, and what is added to them for the models.
const MODULES: [(&str, &str); 5] = [
    ("memory_budget/mod.rs", ""),
    ("call/streaming/notify.rs", ""),
    ("client/cluster/retry_budget.rs", ""),
    ("client/connection/pending.rs", ""),
    (
        "server/turn_queue.rs",
        "impl<C> TurnQueue<C> {
            pub(super) fn with_places(places: usize) -> Self {
                Self { places, ..Self::default() }
            }

            pub(super) fn taken(&self) -> usize {
                self.state.lock().unwrap().taken
            }
        }",
    ),
];

fn main() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/polyrpc/src");
    let out = env::var("OUT_DIR").expect("cargo sets it");
    for (module, more) in MODULES {
        let path = sources.join(module);
        println!("cargo::rerun-if-changed={}", path.display());
        let source = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let (code, _tests) = source.split_once("\n#[cfg(test)]\nmod tests").unwrap_or((&source, ""));
        // An included file has no documentation of its own.
        let code: String =
            code.lines().filter(|line| !line.starts_with("//!")).map(|line| format!("{line}\n")).collect();
        let name = Path::new(module).file_name().expect("a file");
        // loom's atomics have no `get_mut`.
        let code =
            code.replace("std::sync::", "crate::sync::").replace("*self.calls.get_mut()", "self.calls()");
        let code = code
            .replace("*self.streams.get_mut()", "self.streams()")
            .replace("pub(super) fn", "pub(crate) fn");
        fs::write(Path::new(&out).join(name), code + more).expect("OUT_DIR is writable");
    }
}
