use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::PathBuf;

use buffa_codegen::CodeGenError;

/// Error of the code generation.
///
/// An error in a `.proto` or a `.fbs` is reported with its position, as `echo.proto:4:3: …`. `Debug` prints the same as
/// `Display`, since a failing build script prints `Debug`.
pub struct Error {
    kind: Box<Kind>,
}

/// Kind of the error.
pub(crate) enum Kind {
    NoFiles,
    Mixed,
    /// Error in a `.fbs`.
    Schema {
        at: SourceLocation,
        reason: String,
    },
    Read {
        path: PathBuf,
        source: io::Error,
    },
    SameType {
        names: [String; 2],
        rust: String,
    },
    NoOutDir,
    NotFound {
        file: PathBuf,
        includes: Vec<PathBuf>,
    },
    Proto(protox::Error),
    Descriptors(String),
    SameName {
        at: SourceLocation,
        methods: [String; 2],
        rust: String,
    },
    Code(CodeGenError),
    Syntax(syn::Error),
    Write {
        path: PathBuf,
        source: io::Error,
    },
}

/// Position in a `.proto` or a `.fbs`; line and column are counted from 1.
pub(crate) struct SourceLocation {
    pub(crate) file: String,
    pub(crate) line: i32,
    pub(crate) column: i32,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.kind {
            Kind::NoFiles => f.write_str("no .proto file was given"),
            Kind::Mixed => {
                f.write_str("one call generates code for .proto files or for .fbs files, not for both")
            }
            Kind::Schema { at, reason } => write!(f, "{at}: {reason}"),
            Kind::Read { path, .. } => write!(f, "cannot read {}", path.display()),
            Kind::SameType { names: [a, b], rust } => {
                write!(f, "{a} and {b} are both `{rust}` in Rust; rename one of them")
            }
            Kind::NoOutDir => f.write_str(
                "OUT_DIR is not set: call this from a build script, or name a directory with `out_dir`",
            ),
            Kind::NotFound { file, includes } => {
                write!(f, "{} does not exist, neither as given nor below", file.display())?;
                includes.iter().try_for_each(|include| write!(f, " {}", include.display()))
            }
            Kind::Proto(error) => proto(&format!("{error:?}"), f),
            Kind::Descriptors(reason) => f.write_str(reason),
            Kind::SameName { at, methods: [a, b], rust } => {
                write!(f, "{at}: {a} and {b} are both `{rust}` in Rust; rename one of them")
            }
            Kind::Code(error) => error.fmt(f),
            Kind::Syntax(error) => write!(f, "cannot generate Rust code for a service: {error}"),
            Kind::Write { path, .. } => write!(f, "cannot write {}", path.display()),
        }
    }
}

/// Writes an error of `protox`, whose `Debug` has the position that `Display` omits. A file with an edition is to it one
/// with an unknown statement.
fn proto(error: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let statement = error.strip_suffix("but found 'edition'");
    match statement.and_then(|rest| rest.split_once(": expected 'enum', 'extend', 'import'")) {
        Some((location, _)) => {
            write!(
                f,
                "{location}: protobuf editions are not supported; declare `syntax = \"proto3\";` or `\"proto2\"`"
            )
        }
        None => f.write_str(error),
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        self.source().map_or(Ok(()), |source| write!(f, ": {source}"))
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &*self.kind {
            Kind::Write { source, .. } | Kind::Read { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl From<Kind> for Error {
    fn from(kind: Kind) -> Self {
        Self { kind: Box::new(kind) }
    }
}

/// Line and column, counted from 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    pub(crate) line: i32,
    pub(crate) column: i32,
}

impl SourceLocation {
    pub(crate) fn new(file: &str, at: Position) -> Self {
        Self { file: file.to_owned(), line: at.line, column: at.column }
    }
}

impl fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}
