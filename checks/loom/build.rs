//! Copies the modules under test, with loom's locks and atomics instead of the standard ones: the library itself has no trace
//! of loom.

use std::path::Path;
use std::{env, fs};

/// Modules of `crates/polyrpc/src`, and what is added to them for the models.
const MODULES: [(&str, &str); 10] = [
    ("memory_budget/mod.rs", ""),
    ("memory_budget/expected.rs", ""),
    ("call/streaming/notify.rs", ""),
    ("client/retryable.rs", ""),
    ("client/cluster/retry_budget.rs", ""),
    ("client/connection/call_counts.rs", ""),
    ("client/connection/pending.rs", ""),
    ("client/pool/open_connections.rs", ""),
    ("client/pool/slot_queue/mod.rs", ""),
    (
        "server/turn_queue.rs",
        "impl<C> TurnQueue<C> {
            pub(super) fn with_slots(slots: usize) -> Self {
                Self { slots, ..Self::default() }
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
        // A folder's `mod.rs` is copied under the folder's name.
        let name = module.strip_suffix("/mod.rs").map_or(module.to_owned(), |folder| format!("{folder}.rs"));
        let name = Path::new(&name).file_name().expect("a file");
        fs::write(Path::new(&out).join(name), with_loom(code) + more).expect("OUT_DIR is writable");
    }
}

fn with_loom(code: &str) -> String {
    // An included file has no documentation of its own.
    let lines = code.lines().filter(|line| !line.starts_with("//!"));
    let code: String = lines.map(|line| lazy_static(line) + "\n").collect();
    // loom's atomics have no `get_mut`.
    code.replace("std::sync::", "crate::sync::")
        .replace("*self.calls.get_mut()", "self.calls()")
        .replace("*self.streams.get_mut()", "self.streams()")
        .replace("pub(super)", "pub(crate)")
}

/// loom's locks and atomics are not created at compile time, but once in every run of a model.
fn lazy_static(line: &str) -> String {
    match line.trim_start().strip_prefix("static ") {
        Some(rest) => format!("loom::lazy_static! {{ static ref {rest} }}"),
        None => line.to_owned(),
    }
}
