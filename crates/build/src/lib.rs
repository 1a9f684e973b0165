//! Rust code from `.proto` files, without `protoc`, and from `.fbs` files, without `flatc`.
//!
//! For a build script:
//!
//! ```no_run
//! // build.rs
//! fn main() -> Result<(), polyrpc_build::Error> {
//!     polyrpc_build::compile(&["proto/echo.proto"], &["proto"])
//! }
//! ```
//!
//! Each package becomes one file in `OUT_DIR`, to be included in its module:
//!
//! ```ignore
//! #[allow(warnings)]
//! pub mod example {
//!     include!(concat!(env!("OUT_DIR"), "/example.rs"));
//! }
//! ```
//!
//! For checked-in files, [`Config::generate`] returns the same code as text, and a test with [`GeneratedCode::stale`] keeps
//! them up to date with the `.proto`. Include such a file as well, rather than declare it as a module, so that rustfmt
//! leaves it alone.
//!
//! # Generated code
//!
//! * `a.b.rs` for package `a.b`, `_.rs` for files without a package. All files of a package must be passed in one call,
//!   since they become one file.
//! * A struct for each message and an enum for each enum, by `buffa-codegen`. Names are as declared: field `A` is field
//!   `A`, field `type` is field `r#type`.
//! * For each service of the named files a trait with `#[polyrpc::service]`, and for the package the constant
//!   `FILE_DESCRIPTOR_SET`. Method `SayHello` is method `say_hello`; a `stream` becomes a `polyrpc::Streaming` of the
//!   message.
//!
//! The messages of an imported file are generated too when they are used, except those of `google.protobuf`, which are
//! in `polyrpc::protobuf::well_known`. A type of another package is reached through the parent module, so modules must
//! nest as the packages do; [`Config::include_file`] generates them.
//!
//! # FlatBuffers
//!
//! Files that end in `.fbs` are read in the same way; one call takes either kind. The generated code is, again in one
//! file per namespace:
//!
//! * For table `Monster` the types `Monster`, a marker, `MonsterRef`, which reads it in place in a message, and
//!   `MonsterArgs`, from which it is built. A message is a `polyrpc::flatbuffers::Message<Monster>`.
//! * A struct for each struct, a newtype of an integer for each enum, and an enum of the members for each union.
//! * For each `rpc_service` of the named files a trait with `#[polyrpc::service]`. A method's `(id: 7)` is its number
//!   in fb_rpc, `(streaming: "server")` makes it stream.
//!
//! The code is safe, and needs no crate but `polyrpc`.
//!
//! # Dependencies of the including crate
//!
//! It depends on `polyrpc` only, with the feature `descriptor` if it uses a message of
//! `google/protobuf/descriptor.proto`. What a program needs of the messages' own crates is in `polyrpc::protobuf`.
//! Without [`services`](Config::services) the code does not name `polyrpc`, but `buffa`, `buffa-types` and
//! `buffa-descriptor`. Generated code does not satisfy every lint: put `#[allow(warnings)]` on its module, as
//! [`Config::include_file`] does.

mod source;

mod descriptor_set;
mod doc;
mod package;
mod reexport;
mod service;

pub mod fbs;

mod error;
mod generated;

use std::env;
use std::path::{Path, PathBuf};

use buffa_codegen::{BytesRepr, CodeGenConfig, MapRepr};

use crate::error::Kind;
use crate::source::Sources;

pub use error::Error;
pub use generated::GeneratedCode;

/// Generates code for `files` into `OUT_DIR` and emits cargo's `rerun-if-changed`; for a build script.
///
/// The files and their imports are looked up under `includes`.
///
/// # Errors
///
/// See [`Config::compile`].
pub fn compile(
    files: impl IntoIterator<Item = impl AsRef<Path>>,
    includes: impl IntoIterator<Item = impl AsRef<Path>>,
) -> Result<(), Error> {
    Config::new().files(files).includes(includes).compile()
}

/// Configuration of the code generation.
///
/// ```no_run
/// # fn main() -> Result<(), polyrpc_build::Error> {
/// polyrpc_build::Config::new()
///     .files(["proto/echo.proto", "proto/chat.proto"])
///     .includes(["proto"])
///     .blocking(["chat.Chat.Search"])
///     .compile()
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    files: Vec<PathBuf>,
    includes: Vec<PathBuf>,
    out_dir: Option<PathBuf>,
    include_file: Option<PathBuf>,
    services: bool,
    skip_streaming: bool,
    blocking: Vec<String>,
    messages: CodeGenConfig,
}

impl Config {
    /// Creates a configuration without files, and with the default of every option.
    pub fn new() -> Self {
        let mut messages = CodeGenConfig::default();
        messages.file_per_package = true;
        // A borrowed view of each message would double the code, and handlers own their requests.
        messages.generate_views = false;
        // std's usual map, not one with another hasher.
        messages.map_fields =
            vec![(".".to_owned(), MapRepr::Custom("::std::collections::HashMap".to_owned()))];
        Self {
            files: Vec::new(),
            includes: Vec::new(),
            out_dir: None,
            include_file: None,
            services: true,
            skip_streaming: false,
            blocking: Vec::new(),
            messages,
        }
    }

    /// Adds files to generate code for.
    #[must_use]
    pub fn files(mut self, files: impl IntoIterator<Item = impl AsRef<Path>>) -> Self {
        self.files.extend(files.into_iter().map(|file| file.as_ref().to_owned()));
        self
    }

    /// Adds directories that contain the files and their imports, to be searched in this order. Default: the current
    /// directory.
    #[must_use]
    pub fn includes(mut self, includes: impl IntoIterator<Item = impl AsRef<Path>>) -> Self {
        self.includes.extend(includes.into_iter().map(|include| include.as_ref().to_owned()));
        self
    }

    /// Sets the directory in which [`compile`](Self::compile) writes, instead of `OUT_DIR`.
    #[must_use]
    pub fn out_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.out_dir = Some(dir.into());
        self
    }

    /// Also writes a file of this name that includes the others, in modules that nest like the packages. As `mod.rs` of
    /// a source directory it turns the directory into that module.
    #[must_use]
    pub fn include_file(mut self, name: impl Into<PathBuf>) -> Self {
        self.include_file = Some(name.into());
        self
    }

    /// Sets whether services become traits; on by default. Without them the code does not need the crate `polyrpc`, but
    /// `buffa`, and `buffa-types` if it uses `google.protobuf`: for a crate of messages only. The descriptors of the
    /// services are generated in any case.
    #[must_use]
    pub fn services(mut self, yes: bool) -> Self {
        self.services = yes;
        self
    }

    /// Sets whether streaming methods are left out of their traits, for a service that is meant for protocols without
    /// streams; off by default.
    #[must_use]
    pub fn skip_streaming(mut self, yes: bool) -> Self {
        self.skip_streaming = yes;
        self
    }

    /// Marks methods as blocking, each by its full name as `helloworld.Greeter.SayHello`: they run on a thread of their
    /// own.
    #[must_use]
    pub fn blocking(mut self, methods: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.blocking.extend(methods.into_iter().map(Into::into));
        self
    }

    /// Sets whether a message keeps unknown fields and encodes them again; on by default, since an intermediate service
    /// must pass on the fields of a newer peer, as protobuf requires since 3.5. Without it, each message is three words
    /// smaller.
    #[must_use]
    pub fn preserve_unknown_fields(mut self, yes: bool) -> Self {
        self.messages.preserve_unknown_fields = yes;
        self
    }

    /// Makes fields of type `bytes` a [`Bytes`](https://docs.rs/bytes) instead of a `Vec<u8>`, so that they share the
    /// bytes of a message that is decoded from a `Bytes` instead of copying them. A path names a package, a message or
    /// a field, as `example.EchoRequest.payload`; `.` means all of them. Values of maps stay `Vec<u8>`.
    #[must_use]
    pub fn bytes_fields(mut self, paths: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let rules = paths.into_iter().map(|path| (to_absolute_name(path.as_ref()), BytesRepr::Bytes));
        self.messages.bytes_fields.extend(rules);
        self
    }

    /// Uses existing types for a package, or for one type, instead of generating them: `extern_path("common.v1",
    /// "::common_protos::common::v1")`.
    #[must_use]
    pub fn extern_path(mut self, proto: impl AsRef<str>, rust: impl Into<String>) -> Self {
        self.messages.extern_paths.push((to_absolute_name(proto.as_ref()), rust.into()));
        self
    }

    /// Generates the code, writes the files that changed, and emits cargo's `rerun-if-changed`; for a build script.
    ///
    /// # Errors
    ///
    /// As [`generate`](Self::generate); also if a file cannot be written, or there is neither an
    /// [`out_dir`](Self::out_dir) nor `OUT_DIR`.
    pub fn compile(&self) -> Result<(), Error> {
        let dir = self.out_dir.clone().or_else(|| env::var_os("OUT_DIR").map(PathBuf::from));
        let dir = dir.ok_or(Kind::NoOutDir)?;
        let generated = self.generate()?;
        for input in &generated.inputs {
            println!("cargo:rerun-if-changed={}", input.display());
        }
        for warning in &generated.warnings {
            println!("cargo:warning={warning}");
        }
        generated.write(&dir)
    }

    /// Generates the code without writing it.
    ///
    /// # Errors
    ///
    /// If a file is missing or invalid, or a name cannot be represented in Rust.
    pub fn generate(&self) -> Result<GeneratedCode, Error> {
        let schemas =
            self.files.iter().filter(|file| file.extension().is_some_and(|kind| kind == "fbs")).count();
        match schemas {
            0 => package::generate(self, Sources::read(&self.files, &self.includes)?),
            all if all == self.files.len() => {
                fbs::generate::generate(self, &fbs::read(&self.files, &self.includes)?)
            }
            _ => Err(Kind::Mixed.into()),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::new()
    }
}

/// Adds the leading dot of an absolute name in descriptors.
fn to_absolute_name(path: &str) -> String {
    if path.starts_with('.') { path.to_owned() } else { format!(".{path}") }
}
