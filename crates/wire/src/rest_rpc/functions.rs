use std::collections::BTreeMap;
use std::fmt;

/// The number by which a function or a topic is called: the first four bytes of its name's MD5, read big-endian
/// (rest_rpc `md5.hpp`, `MD5Hash32`). A topic's name need not be UTF-8.
///
/// ```
/// assert_eq!(polyrpc_wire::rest_rpc::number("add"), 0x34ec_78fc);
/// ```
pub fn number(name: impl AsRef<[u8]>) -> u32 {
    let md5::Digest([a, b, c, d, ..]) = md5::compute(name);
    u32::from_be_bytes([a, b, c, d])
}

/// What a method of a service is called here: as C++ would write it, `example::EchoService::Echo`. A function
/// bears its own name.
pub fn qualified(service: &str, method: &str) -> String {
    match service {
        "" => method.to_owned(),
        _ => format!("{}::{method}", service.replace('.', "::")),
    }
}

/// What a server offers, by the names and the numbers that rest_rpc's clients call it by.
#[derive(Clone, Default)]
pub struct Functions {
    targets: Vec<FunctionTarget>,
    names: BTreeMap<String, FunctionIndex>,
    numbers: BTreeMap<u32, FunctionIndex>,
}

/// Where a method stands among those on offer.
#[derive(Clone, Copy, Debug)]
pub(super) struct FunctionIndex(usize);

/// A method as the server knows it.
#[derive(Clone, Debug)]
pub(super) struct FunctionTarget {
    pub(super) service: String,
    pub(super) method: String,
}

impl Functions {
    /// Adds a method under its [qualified] name and as `Service/Method`. A name that is taken, or whose number is,
    /// stays with who has it.
    pub fn add(&mut self, service: &str, method: &str) {
        let place = FunctionIndex(self.targets.len());
        self.targets.push(FunctionTarget { service: service.to_owned(), method: method.to_owned() });
        self.name(qualified(service, method), place);
        if !service.is_empty() {
            self.name(format!("{service}/{method}"), place);
        }
    }

    fn name(&mut self, name: String, place: FunctionIndex) {
        self.numbers.entry(number(&name)).or_insert(place);
        self.names.entry(name).or_insert(place);
    }

    pub(super) fn named(&self, name: &str) -> Option<FunctionIndex> {
        self.names.get(name).copied()
    }

    pub(super) fn numbered(&self, number: u32) -> Option<FunctionIndex> {
        self.numbers.get(&number).copied()
    }

    pub(super) fn at(&self, FunctionIndex(place): FunctionIndex) -> Option<&FunctionTarget> {
        self.targets.get(place)
    }
}

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names.keys()).finish()
    }
}
