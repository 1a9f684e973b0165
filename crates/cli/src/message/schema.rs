//! Schema of a method's messages: from `.proto` files, from a server's reflection, or from this program's own services.

use std::path::{Path, PathBuf};

use polyrpc::introspection::grpc;
use polyrpc::payload::schema::{Message, Method, Pool, Service};
use polyrpc::service::StreamType;

use crate::failure::Failure;
use crate::proto;

/// A method's messages, and how many of them there may be.
#[derive(Debug)]
pub(crate) struct Types {
    pub(super) input: Message,
    pub(super) output: Message,
    pub(super) shape: StreamType,
}

/// What `.proto` files describe.
#[derive(Debug)]
pub(crate) struct SchemaSource {
    pool: Pool,
    /// Where that is from.
    source: String,
}

/// Reads `.proto` files. Without directories to look in, what a file imports is looked for beside it and here.
pub(crate) fn read(files: &[PathBuf], includes: &[PathBuf]) -> Result<SchemaSource, Failure> {
    let includes = match includes {
        [] => beside(files),
        includes => includes.to_vec(),
    };
    // `Debug` prints the position, `Display` does not.
    let wrong = |error: protox::Error| Failure::new(format!("{error:?}"));
    let mut compiler = protox::Compiler::new(includes).map_err(wrong)?;
    compiler.include_imports(true);
    for file in files {
        if !file.exists() {
            return Err(Failure::new(format!("there is no file {}", file.display())));
        }
        compiler.open_file(file).map_err(wrong)?;
    }
    let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    SchemaSource::new(&compiler.encode_file_descriptor_set(), files.join(", "))
}

fn beside(files: &[PathBuf]) -> Vec<PathBuf> {
    let here = || PathBuf::from(".");
    let parent = |file: &PathBuf| match file.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => here(),
    };
    let mut directories: Vec<_> = files.iter().map(parent).chain([here()]).collect();
    let mut seen = Vec::new();
    directories.retain(|directory| {
        let new = !seen.contains(directory);
        seen.push(directory.clone());
        new
    });
    directories
}

impl SchemaSource {
    /// What a serialized `FileDescriptorSet` describes, which has all that its files import.
    pub(crate) fn new(set: &[u8], source: impl Into<String>) -> Result<Self, Failure> {
        let source = source.into();
        match Pool::decode(set) {
            Ok(pool) => Ok(Self { pool, source }),
            Err(error) => Err(Failure::new(format!("{source}: {error}"))),
        }
    }

    /// The `FileDescriptorSet`.
    pub(crate) fn encoded(&self) -> &[u8] {
        self.pool.encoded()
    }

    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// The messages of `Service/Method`.
    pub(crate) fn types(&self, target: &str) -> Result<Types, Failure> {
        let (service_name, method_name) = target.rsplit_once('/').ok_or_else(|| {
            Failure::new(format!(
                "`{target}` names no method that a .proto could describe: want Service/Method"
            ))
        })?;
        let known = |names: Vec<&str>| match names.is_empty() {
            true => "it has none".to_owned(),
            false => format!("it has {}", names.join(", ")),
        };
        let service = find(&self.pool, service_name).ok_or_else(|| {
            let names = self.pool.services().map(|service| service.full_name()).collect();
            let text = format!("there is no service `{service_name}` in {}", self.source);
            Failure::new(text).with_hint(known(names))
        })?;
        let method = service.methods().find(|method| method.name() == method_name).ok_or_else(|| {
            let names = service.methods().map(|method| method.name()).collect();
            let text = format!("there is no method `{method_name}` in {}", service.full_name());
            Failure::new(text).with_hint(known(names))
        })?;
        Ok(Types::of(method))
    }
}

impl Types {
    fn of(method: Method<'_>) -> Self {
        let shape = StreamType {
            client_streams: method.client_streaming(),
            server_streams: method.server_streaming(),
        };
        Self { input: method.input(), output: method.output(), shape }
    }
}

/// The messages of a method of this program's own services.
pub(super) fn built_in(target: &str) -> Option<Types> {
    let (service, method) = target.rsplit_once('/')?;
    [
        proto::FILE_DESCRIPTOR_SET,
        proto::example::FILE_DESCRIPTOR_SET,
        proto::helloworld::FILE_DESCRIPTOR_SET,
        proto::pb::FILE_DESCRIPTOR_SET,
        grpc::health::v1::FILE_DESCRIPTOR_SET,
    ]
    .into_iter()
    .find_map(|set| {
        let pool = Pool::decode(set).ok()?;
        let method = find(&pool, service)?.methods().find(|known| known.name() == method)?;
        Some(Types::of(method))
    })
}

/// A service by its full name or, where only one has it, by the last part of it.
fn find<'p>(pool: &'p Pool, name: &str) -> Option<Service<'p>> {
    let short = |service: &Service<'_>| service.full_name().rsplit('.').next() == Some(name);
    pool.service(name).or_else(|| {
        let mut candidates = pool.services().filter(short);
        candidates.next().filter(|_| candidates.next().is_none())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_own_methods_are_known_by_full_and_short_name() {
        for (target, input) in [
            ("example.EchoService/Echo", "example.EchoRequest"),
            ("EchoService/Echo", "example.EchoRequest"),
            ("helloworld.Greeter/SayHello", "helloworld.HelloRequest"),
            ("pb.Hello/Say", "pb.BenchmarkMessage"),
            ("Arith/Mul", "ArithArgs"),
            ("PBArith/Mul", "PBArgs"),
            ("grpc.health.v1.Health/Watch", "grpc.health.v1.HealthCheckRequest"),
        ] {
            assert_eq!(built_in(target).expect(target).input.full_name(), input);
        }
        for unknown in ["Arith/Nope", "Nope/Mul", "add", ""] {
            assert!(built_in(unknown).is_none(), "{unknown}");
        }
    }
}
