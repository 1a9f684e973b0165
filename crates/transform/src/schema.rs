//! Schema of a method's messages: from `.proto` files, descriptor sets, or a server's reflection.

use std::fs;
use std::path::{Path, PathBuf};

use polyrpc::layer::StreamType;
use polyrpc::payload::schema::{Message, Method, Pool, Service};
use polyrpc_grpc_messages::health;

use crate::{Error, closest};

/// A method's messages, and its stream type.
#[derive(Debug)]
pub struct Types {
    /// The request.
    pub input: Message,
    /// The response.
    pub output: Message,
    /// The directions in which the method streams.
    pub stream_type: StreamType,
    /// The method with the full name of its service, `package.Service/Method`, if it is declared.
    pub full_name: Option<String>,
    /// It is declared, and not as free of side effects (`idempotency_level = NO_SIDE_EFFECTS`).
    pub has_side_effects: bool,
}

/// The content of `.proto` files.
#[derive(Debug, Clone)]
pub struct SchemaSource {
    pool: Pool,
    /// Origin of the description.
    source: String,
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
    /// Reads serialized `FileDescriptorSet`s.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, or its content is no such set.
    pub fn read_sets(files: &[PathBuf]) -> Result<Self, Error> {
        let mut set = Vec::new();
        for file in files {
            let read = fs::read(file);
            // Concatenated sets form one set of all files.
            set.extend(read.map_err(|error| Error::system(format!("read {}", file.display()), &error))?);
        }
        let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
        Self::new(&set, files.join(", ")).map_err(|failure| {
            failure.with_hint("expected what `protoc --include_imports --descriptor_set_out=FILE` writes")
        })
    }

    /// Reads `.proto` files. Without include directories, imports are searched in the file's directory and in the
    /// current directory.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or compiled, with the position.
    pub fn read_proto(files: &[PathBuf], includes: &[PathBuf]) -> Result<Self, Error> {
        if let Some(missing) = includes.iter().find(|folder| !folder.is_dir()) {
            return Err(Error::new(format!("there is no directory {} to include (-I)", missing.display())));
        }
        let found = files.iter().map(|file| find_file(file, includes)).collect::<Result<Vec<_>, _>>()?;
        let files = found.as_slice();
        let includes = match includes {
            [] => folders_of(files),
            includes => includes.to_vec(),
        };
        // `Debug` prints the position, `Display` does not.
        let wrong = |error: protox::Error| Error::new(format!("{error:?}"));
        let mut compiler = protox::Compiler::new(includes).map_err(wrong)?;
        // Comments serve as descriptions for callers.
        compiler.include_imports(true).include_source_info(true);
        for file in files {
            compiler.open_file(file).map_err(wrong)?;
        }
        let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
        Self::new(&compiler.encode_file_descriptor_set(), files.join(", "))
    }

    /// The content of a serialized `FileDescriptorSet`, which includes all imports.
    ///
    /// # Errors
    ///
    /// If the set is invalid.
    pub fn new(set: &[u8], source: impl Into<String>) -> Result<Self, Error> {
        let source = source.into();
        match Pool::decode(set) {
            Ok(pool) => Ok(Self { pool, source }),
            Err(error) => Err(Error::new(format!("{source}: {error}"))),
        }
    }

    /// Returns all declarations.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The `FileDescriptorSet`.
    pub fn encoded(&self) -> &[u8] {
        self.pool.encoded()
    }

    /// Origin of the description, for errors.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The messages of a method: `Service/Method`, `Service.Method`, both with or without a package.
    ///
    /// # Errors
    ///
    /// If there is no such method, with a hint.
    pub fn types(&self, target: &str) -> Result<Types, Error> {
        let (service_name, method_name) = split(target).ok_or_else(|| {
            Error::new(format!("`{target}` is not a method that {} could describe", self.source)).with_hint(
                "write Service/Method, or name its messages with --request-type and --response-type",
            )
        })?;
        let service = find(&self.pool, service_name).ok_or_else(|| {
            let names: Vec<_> = self.pool.services().map(|service| service.full_name()).collect();
            let text = format!("there is no service `{service_name}` in {}", self.source);
            Error::new(text).with_hint(service_hint(service_name, &names))
        })?;
        let method = service.methods().find(|method| method.name() == method_name).ok_or_else(|| {
            let names: Vec<_> = service.methods().map(|method| method.name()).collect();
            let text = format!("there is no method `{method_name}` in {}", service.full_name());
            Error::new(text).with_hint(closest::hint(method_name, &names, "it has"))
        })?;
        Ok(Types::new(service, method))
    }

    /// Whether a declared method has `idempotency_level = NO_SIDE_EFFECTS`.
    pub fn has_no_side_effects(&self, target: &str) -> bool {
        let declared = split(target).and_then(|(service, method)| {
            find(&self.pool, service)?.methods().find(|known| known.name() == method)
        });
        declared.is_some_and(|method| method.has_no_side_effects())
    }

    /// The message types that the user names for a method.
    ///
    /// # Errors
    ///
    /// If there is no such message, with a hint.
    pub fn types_of_messages(&self, request: &str, response: &str) -> Result<Types, Error> {
        let named = |name: &str| {
            let name = name.trim_start_matches('.');
            self.pool.message(name).ok_or_else(|| {
                let messages: Vec<_> =
                    self.pool.messages().filter(|message| !message.is_map_entry()).collect();
                let names: Vec<_> = messages.iter().map(|message| message.full_name()).collect();
                Error::new(format!("there is no message `{name}` in {}", self.source))
                    .with_hint(service_hint(name, &names))
            })
        };
        let (input, output) = (named(request)?, named(response)?);
        Ok(Types { input, output, stream_type: StreamType::UNARY, full_name: None, has_side_effects: false })
    }
}

/// The path of a file, which may be given relative to an included directory, as for `protoc`.
fn find_file(file: &Path, includes: &[PathBuf]) -> Result<PathBuf, Error> {
    let below = includes.iter().map(|folder| folder.join(file));
    let mut paths = [file.to_owned()].into_iter().chain(below);
    paths.find(|path| path.exists()).ok_or_else(|| Error::new(format!("there is no file {}", file.display())))
}

/// Splits service and method as users write them.
pub fn split(target: &str) -> Option<(&str, &str)> {
    let target = target.strip_prefix('/').unwrap_or(target);
    let parts = target.rsplit_once('/').or_else(|| target.rsplit_once('.'))?;
    (!parts.0.is_empty() && !parts.1.is_empty()).then_some(parts)
}

/// The hint for an unknown name, which may be missing its package.
pub fn service_hint(wanted: &str, names: &[&str]) -> String {
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let short: Vec<_> = names.iter().map(|name| last(name)).collect();
    let near = closest::closest(&last(wanted), short.iter().map(String::as_str));
    let index = near.and_then(|near| short.iter().position(|name| name == near));
    match index.and_then(|index| names.get(index)) {
        Some(name) => format!("did you mean `{name}`?"),
        None => closest::list(names, "it has"),
    }
}

impl Types {
    /// Returns the messages of a method that a serialized `FileDescriptorSet` declares, if it does.
    pub fn from_set(set: &[u8], target: &str) -> Option<Self> {
        let (service, method) = split(target)?;
        let pool = Pool::decode(set).ok()?;
        let service = find(&pool, service)?;
        let method = service.methods().find(|known| known.name() == method)?;
        Some(Self::new(service, method))
    }

    /// Returns the messages of a method that is the same on every server: gRPC health checks.
    pub fn standard(target: &str) -> Option<Self> {
        Self::from_set(health::v1::FILE_DESCRIPTOR_SET, target)
    }

    fn new(service: Service<'_>, method: Method<'_>) -> Self {
        let stream_type = StreamType {
            client_streaming: method.client_streaming(),
            server_streaming: method.server_streaming(),
        };
        let full_name = Some(format!("{}/{}", service.full_name(), method.name()));
        let has_side_effects = !method.has_no_side_effects();
        Self { input: method.input(), output: method.output(), stream_type, full_name, has_side_effects }
    }
}

/// A service by its full name or, if unambiguous, by the last part of it.
fn find<'p>(pool: &'p Pool, name: &str) -> Option<Service<'p>> {
    let short = |service: &Service<'_>| service.full_name().rsplit('.').next() == Some(name);
    pool.service(name).or_else(|| {
        let mut candidates = pool.services().filter(short);
        candidates.next().filter(|_| candidates.next().is_none())
    })
}
