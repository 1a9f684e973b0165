use std::collections::HashMap;
use std::panic::Location;
use std::sync::{LazyLock, Mutex, PoisonError};

/// A function at an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Symbol {
    pub(super) name: String,
    pub(super) file: String,
    pub(super) line: u32,
}

impl Symbol {
    /// Returns the function that represents waiting for a lock at a location.
    pub(super) fn from_lock(location: &Location<'_>) -> Self {
        let folders = location.file().rmatch_indices('/').nth(1).map_or(0, |(at, _)| at + 1);
        let short = location.file().get(folders..).unwrap_or_default();
        Self {
            name: format!("lock at {short}:{}", location.line()),
            file: location.file().to_owned(),
            line: location.line(),
        }
    }
}

/// The functions at addresses that were resolved, the innermost of inlined ones first. Later profiles find most of
/// theirs.
static KNOWN: LazyLock<Mutex<HashMap<usize, Vec<Symbol>>>> = LazyLock::new(Mutex::default);

/// Maximum number of addresses that are kept.
const MAX_ADDRESSES: usize = 1 << 16;

/// Maximum length of a function's name. Names of generic functions may have any.
const MAX_NAME_LEN: usize = 512;

/// Returns the functions at an address, the innermost of inlined ones first.
pub(super) fn resolve(address: usize) -> Vec<Symbol> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(symbols) = known.get(&address) {
        return symbols.clone();
    }
    let symbols = resolve_uncached(address);
    if known.len() >= MAX_ADDRESSES {
        known.clear();
    }
    known.insert(address, symbols.clone());
    symbols
}

#[cfg(all(
    any(target_os = "linux", target_os = "macos"),
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
fn resolve_uncached(address: usize) -> Vec<Symbol> {
    let mut symbols = Vec::new();
    backtrace::resolve(address as *mut _, |symbol| {
        // Without the hash that the compiler adds.
        let name = symbol.name().map(|name| format!("{name:#}"));
        let name = name.unwrap_or_else(|| format!("{address:#x}"));
        symbols.push(Symbol {
            name: name.chars().take(MAX_NAME_LEN).collect(),
            file: symbol.filename().map(|file| file.display().to_string()).unwrap_or_default(),
            line: symbol.lineno().unwrap_or(0),
        });
    });
    if symbols.is_empty() {
        symbols.push(Symbol { name: format!("{address:#x}"), file: String::new(), line: 0 });
    }
    symbols
}

#[cfg(not(all(
    any(target_os = "linux", target_os = "macos"),
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
fn resolve_uncached(address: usize) -> Vec<Symbol> {
    vec![Symbol { name: format!("{address:#x}"), file: String::new(), line: 0 }]
}
