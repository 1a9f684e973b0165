//! Mapping from numbers to names: a peer identifies a service by the hash of its name and a method by its number.

use std::fmt;

use super::Magic;

/// Services of a server, by their numbers.
#[derive(Debug, Clone, Default)]
pub struct ServiceDirectory {
    /// Sorted by id: a handful, looked up once per call.
    services: Vec<(u32, Service)>,
}

#[derive(Debug, Clone)]
struct Service {
    name: Box<str>,
    /// Id and name of each method, in the order of the service; a method without an id of its own has its index.
    methods: Vec<(u32, Box<str>)>,
    /// Indices into `methods`, sorted by id.
    by_id: Vec<u16>,
    /// The number is that of #3197, which identifies methods by index.
    positional: bool,
}

impl ServiceDirectory {
    /// Adds a service with its methods in order, each with its assigned id, under its numbers by both hashes. A service
    /// with the same name is replaced.
    ///
    /// # Errors
    ///
    /// If another service, or two of its methods, have the same number: nothing is added then.
    pub fn add_service<'m>(
        &mut self,
        name: &str,
        methods: impl IntoIterator<Item = (&'m str, Option<u32>)>,
    ) -> Result<(), NumberCollision> {
        let methods: Vec<(u32, Box<str>)> = methods
            .into_iter()
            .zip(0..)
            .map(|((method, id), index)| (id.unwrap_or(index), Box::from(method)))
            .collect();
        let mut by_id: Vec<u16> = (0..methods.len()).map_while(|index| u16::try_from(index).ok()).collect();
        let id_of = |index: &u16| methods.get(usize::from(*index)).map(|(id, _)| *id);
        by_id.sort_unstable_by_key(id_of);
        for pair in by_id.windows(2) {
            if let [a, b] = pair
                && id_of(a) == id_of(b)
            {
                let name = |index: &u16| {
                    methods
                        .get(usize::from(*index))
                        .map_or_else(String::new, |(_, method)| format!("{name}/{method}"))
                };
                return Err(NumberCollision {
                    names: [name(a), name(b)],
                    number: id_of(a).unwrap_or_default(),
                });
            }
        }
        let ids = [ServiceHash::OneDot, ServiceHash::TwoDots].map(|hash| service_id(name, hash));
        if let Some(other) = self.services.iter().find(|(id, other)| ids.contains(id) && *other.name != *name)
        {
            return Err(NumberCollision {
                names: [other.1.name.to_string(), name.to_owned()],
                number: other.0,
            });
        }
        self.services.retain(|(_, other)| *other.name != *name);
        // Without a namespace both hashes are the same: the magic of the call decides how methods are numbered.
        let [one_dot, _] = ids;
        let numbers = ids.into_iter().zip([false, true]);
        for (id, positional) in numbers.filter(|(id, positional)| !*positional || *id != one_dot) {
            let service =
                Service { name: name.into(), methods: methods.clone(), by_id: by_id.clone(), positional };
            let index = self.services.partition_point(|(other, _)| *other < id);
            self.services.insert(index, (id, service));
        }
        Ok(())
    }

    /// Returns the names for the numbers of a request; `None` for what is unknown.
    pub(super) fn names(&self, service: u32, method: i32, magic: Magic) -> Option<(&str, Option<&str>)> {
        let index = self.services.binary_search_by_key(&service, |(id, _)| *id).ok()?;
        let (_, service) = self.services.get(index)?;
        // A regenerated sample of #3197 uses the one-dot hash, and still identifies methods by index.
        let positional = service.positional || magic == Magic::Brpc;
        Some((&service.name, service.method(method, positional)))
    }
}

impl Service {
    fn method(&self, number: i32, positional: bool) -> Option<&str> {
        let number = u32::try_from(number).ok()?;
        let index = if positional {
            number as usize
        } else {
            let found = self.by_id.binary_search_by_key(&Some(number), |index| {
                self.methods.get(usize::from(*index)).map(|(id, _)| *id)
            });
            usize::from(*self.by_id.get(found.ok()?)?)
        };
        self.methods.get(index).map(|(_, name)| &**name)
    }
}

/// Two names have the same number: a peer could not call both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumberCollision {
    names: [String; 2],
    number: u32,
}

impl fmt::Display for NumberCollision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { names: [a, b], number } = self;
        write!(f, "{a} and {b} are both number {number} in fb_rpc; rename one, or give it another id")
    }
}

impl std::error::Error for NumberCollision {}

/// Which form of a service's name is hashed; the protocol's proposals differ in it. A service without a namespace has
/// the same number in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum ServiceHash {
    /// The full name: apache/brpc#3559, which identifies methods by the ids in the `.fbs`.
    #[default]
    OneDot,
    /// With two dots before the last part: #3197, whose generator adds a dot after a namespace that ends with one
    /// already, and which identifies methods by index.
    TwoDots,
}

/// Returns the number of a service: MurmurHash3 (x86, 32 bits) of its full name, seed 1.
pub fn service_id(name: &str, hash: ServiceHash) -> u32 {
    match (hash, name.rsplit_once('.')) {
        (ServiceHash::TwoDots, Some((namespace, last))) => {
            murmur3(&[namespace.as_bytes(), b"..", last.as_bytes()].concat())
        }
        (ServiceHash::OneDot, _) | (ServiceHash::TwoDots, None) => murmur3(name.as_bytes()),
    }
}

/// MurmurHash3_x86_32 with seed 1 (Austin Appleby's, in the public domain; brpc `butil/third_party/murmurhash3`).
fn murmur3(bytes: &[u8]) -> u32 {
    const C1: u32 = 0xcc9e_2d51;
    const C2: u32 = 0x1b87_3593;
    let scramble = |k: u32| k.wrapping_mul(C1).rotate_left(15).wrapping_mul(C2);

    let mut hash: u32 = 1;
    let (blocks, tail) = bytes.as_chunks::<4>();
    for block in blocks {
        hash ^= scramble(u32::from_le_bytes(*block));
        hash = hash.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    let last = tail.iter().rev().fold(0, |last, byte| last << 8 | u32::from(*byte));
    hash ^= scramble(last);
    hash ^= bytes.len() as u32;
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}
