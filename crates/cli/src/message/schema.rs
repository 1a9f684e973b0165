//! Schema of a method's messages: from `.proto` files, from a server's reflection, or, for `demo`, from this program's own
//! services.

use std::fs;
use std::path::{Path, PathBuf};

use polyrpc::layer::StreamType;
use polyrpc::payload::schema::{Message, Method, Pool, Service};
use polyrpc_grpc_messages::health;

use crate::failure::Failure;
use crate::{closest, proto};

/// A method's messages, and its stream type.
#[derive(Debug)]
pub(crate) struct Types {
    pub(super) input: Message,
    pub(super) output: Message,
    pub(super) shape: StreamType,
    /// The method with the full name of its service, `package.Service/Method`, if it is declared.
    pub(super) full_name: Option<String>,
}

/// The content of `.proto` files.
#[derive(Debug)]
pub(crate) struct SchemaSource {
    pool: Pool,
    /// Origin of the description.
    source: String,
}

/// Reads serialized `FileDescriptorSet`s.
pub(crate) fn read_sets(files: &[PathBuf]) -> Result<SchemaSource, Failure> {
    let mut set = Vec::new();
    for file in files {
        let read = fs::read(file);
        // Concatenated sets form one set of all files.
        set.extend(read.map_err(|error| Failure::system(format!("read {}", file.display()), &error))?);
    }
    let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    SchemaSource::new(&set, files.join(", ")).map_err(|failure| {
        failure.with_hint("want what `protoc --include_imports --descriptor_set_out=FILE` writes")
    })
}

/// Reads `.proto` files. Without include directories, imports are searched in the file's directory and in the current directory.
pub(crate) fn read(files: &[PathBuf], includes: &[PathBuf]) -> Result<SchemaSource, Failure> {
    let includes = match includes {
        [] => folders_of(files),
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

fn folders_of(files: &[PathBuf]) -> Vec<PathBuf> {
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
    /// The content of a serialized `FileDescriptorSet`, which includes all imports.
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

    /// The messages of a method: `Service/Method`, `Service.Method`, both with or without a package.
    pub(crate) fn types(&self, target: &str) -> Result<Types, Failure> {
        let (service_name, method_name) = split(target).ok_or_else(|| {
            Failure::new(format!("`{target}` is not a method that {} could describe", self.source)).with_hint(
                "write Service/Method, or name its messages with --request-type and --response-type",
            )
        })?;
        let service = find(&self.pool, service_name).ok_or_else(|| {
            let names: Vec<_> = self.pool.services().map(|service| service.full_name()).collect();
            let text = format!("there is no service `{service_name}` in {}", self.source);
            Failure::new(text).with_hint(service_hint(service_name, &names))
        })?;
        let method = service.methods().find(|method| method.name() == method_name).ok_or_else(|| {
            let names: Vec<_> = service.methods().map(|method| method.name()).collect();
            let text = format!("there is no method `{method_name}` in {}", service.full_name());
            Failure::new(text).with_hint(closest::hint(method_name, &names, "it has"))
        })?;
        Ok(Types::of(service, method))
    }

    /// The message types given by the user, for a method.
    pub(super) fn named(&self, request: &str, response: &str) -> Result<Types, Failure> {
        let named = |name: &str| {
            let name = name.trim_start_matches('.');
            self.pool.message(name).ok_or_else(|| {
                let messages: Vec<_> =
                    self.pool.messages().filter(|message| !message.is_map_entry()).collect();
                let names: Vec<_> = messages.iter().map(|message| message.full_name()).collect();
                Failure::new(format!("there is no message `{name}` in {}", self.source))
                    .with_hint(service_hint(name, &names))
            })
        };
        let (input, output) = (named(request)?, named(response)?);
        Ok(Types { input, output, shape: StreamType::UNARY, full_name: None })
    }
}

/// Splits service and method as users write them.
pub(crate) fn split(target: &str) -> Option<(&str, &str)> {
    let target = target.strip_prefix('/').unwrap_or(target);
    let parts = target.rsplit_once('/').or_else(|| target.rsplit_once('.'))?;
    (!parts.0.is_empty() && !parts.1.is_empty()).then_some(parts)
}

/// The hint for an unknown name, which may lack its package.
pub(crate) fn service_hint(wanted: &str, names: &[&str]) -> String {
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let short: Vec<_> = names.iter().map(|name| last(name)).collect();
    let near = closest::closest(&last(wanted), short.iter().map(String::as_str));
    let place = near.and_then(|near| short.iter().position(|name| name == near));
    match place.and_then(|place| names.get(place)) {
        Some(name) => format!("did you mean `{name}`?"),
        None => closest::list(names, "it has"),
    }
}

impl Types {
    fn of(service: Service<'_>, method: Method<'_>) -> Self {
        let shape = StreamType {
            client_streams: method.client_streaming(),
            server_streams: method.server_streaming(),
        };
        let full_name = Some(format!("{}/{}", service.full_name(), method.name()));
        Self { input: method.input(), output: method.output(), shape, full_name }
    }
}

/// The messages of a method of this program's own services. Another server may have other services of
/// the same names.
pub(super) fn built_in(target: &str) -> Option<Types> {
    let own = [
        proto::FILE_DESCRIPTOR_SET,
        proto::example::FILE_DESCRIPTOR_SET,
        proto::helloworld::FILE_DESCRIPTOR_SET,
        proto::pb::FILE_DESCRIPTOR_SET,
    ];
    own.into_iter().find_map(|set| in_set(set, target)).or_else(|| standard(target))
}

/// The messages of a method that is the same on every server: gRPC health checks.
pub(super) fn standard(target: &str) -> Option<Types> {
    in_set(health::v1::FILE_DESCRIPTOR_SET, target)
}

fn in_set(set: &[u8], target: &str) -> Option<Types> {
    let (service, method) = split(target)?;
    let pool = Pool::decode(set).ok()?;
    let service = find(&pool, service)?;
    let method = service.methods().find(|known| known.name() == method)?;
    Some(Types::of(service, method))
}

/// A service by its full name or, if unambiguous, by the last part of it.
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
    fn built_in_methods_are_found_by_full_and_short_name() {
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
