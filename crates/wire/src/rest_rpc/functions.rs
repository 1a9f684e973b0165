use std::collections::BTreeMap;
use std::fmt;

/// Number that identifies a function or a topic: the first four bytes of its name's MD5, read big-endian (rest_rpc
/// `md5.hpp`, `MD5Hash32`). A topic's name need not be UTF-8.
///
/// ```
/// assert_eq!(polyrpc_wire::rest_rpc::number("add"), 0x34ec_78fc);
/// ```
pub fn number(name: impl AsRef<[u8]>) -> u32 {
    let md5::Digest([a, b, c, d, ..]) = md5::compute(name);
    u32::from_be_bytes([a, b, c, d])
}

/// Returns the name of a service's method in rest_rpc: as C++ would write it, `example::EchoService::Echo`. A plain
/// function keeps its name.
pub fn function_name(service: &str, method: &str) -> String {
    match service {
        "" => method.to_owned(),
        _ => format!("{}::{method}", service.replace('.', "::")),
    }
}

/// Functions of a server, by the names and numbers that rest_rpc's clients use.
#[derive(Clone, Default)]
pub struct Functions {
    targets: Vec<FunctionTarget>,
    names: BTreeMap<String, FunctionIndex>,
    numbers: BTreeMap<u32, FunctionIndex>,
}

/// Index of a method in the list of functions.
#[derive(Clone, Copy, Debug)]
pub(super) struct FunctionIndex(usize);

/// A method of the server.
#[derive(Clone, Debug)]
pub(super) struct FunctionTarget {
    pub(super) service: String,
    pub(super) method: String,
}

impl Functions {
    /// Adds a method under its [full name](function_name) and as `Service/Method`. If the name or its number is in use
    /// already, the existing entry is kept.
    pub fn add(&mut self, service: &str, method: &str) {
        let index = FunctionIndex(self.targets.len());
        self.targets.push(FunctionTarget { service: service.to_owned(), method: method.to_owned() });
        self.name(function_name(service, method), index);
        if !service.is_empty() {
            self.name(format!("{service}/{method}"), index);
        }
    }

    fn name(&mut self, name: String, index: FunctionIndex) {
        self.numbers.entry(number(&name)).or_insert(index);
        self.names.entry(name).or_insert(index);
    }

    pub(super) fn find_by_name(&self, name: &str) -> Option<FunctionIndex> {
        self.names.get(name).copied()
    }

    pub(super) fn find_by_number(&self, number: u32) -> Option<FunctionIndex> {
        self.numbers.get(&number).copied()
    }

    pub(super) fn at(&self, FunctionIndex(index): FunctionIndex) -> Option<&FunctionTarget> {
        self.targets.get(index)
    }
}

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names.keys()).finish()
    }
}
