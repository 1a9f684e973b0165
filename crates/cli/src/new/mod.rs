//! `polyrpc new`: writes a project with a service, a client, tests and a container file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use crate::failure::Failure;
use crate::terminal;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Name of the project and of its new directory: letters, digits, - and _
    #[arg(value_name = "NAME", value_parser = parse_name)]
    name: String,
    /// A service declared in a .proto [default]
    #[arg(long, conflicts_with = "functions")]
    proto: bool,
    /// Functions with plain Rust types
    #[arg(long)]
    functions: bool,
    /// Depend on PolyRPC in this directory instead of its repository
    #[arg(long, value_name = "DIR")]
    checkout: Option<PathBuf>,
}

pub(crate) fn run(options: Options) -> Result<ExitCode, Failure> {
    let template = if options.functions { FUNCTIONS } else { PROTO };
    let root = Path::new(&options.name);
    let refused = |path: &Path, error| Failure::system(format!("write {}", path.display()), &error);
    let words = options.words()?;
    // Existing files are never replaced.
    fs::create_dir(root).map_err(|error| refused(root, error))?;
    for (path, text) in COMMON.iter().chain(template) {
        let path = root.join(path);
        let text = words.iter().fold((*text).to_owned(), |text, (word, value)| text.replace(word, value));
        let parent = path.parent().unwrap_or(root);
        fs::create_dir_all(parent)
            .and_then(|()| fs::write(&path, text))
            .map_err(|error| refused(&path, error))?;
    }
    terminal::print(&format!("wrote {0}; next: cd {0} && cargo test && cargo run", options.name))?;
    Ok(ExitCode::SUCCESS)
}

impl Options {
    /// The value of each placeholder of the templates.
    fn words(&self) -> Result<[(&'static str, String); 4], Failure> {
        Ok([
            ("{{name}}", self.name.clone()),
            ("{{crate}}", self.name.replace('-', "_")),
            ("{{polyrpc}}", self.source("polyrpc")?),
            ("{{polyrpc-build}}", self.source("build")?),
        ])
    }

    /// The dependency specification of one of PolyRPC's crates.
    fn source(&self, folder: &str) -> Result<String, Failure> {
        let Some(checkout) = &self.checkout else {
            return Ok(format!("git = \"{}\"", env!("CARGO_PKG_REPOSITORY")));
        };
        let path = checkout.join("crates").join(folder);
        let path = path
            .canonicalize()
            .map_err(|error| Failure::system(format!("find PolyRPC in {}", checkout.display()), &error))?;
        let path = path.to_str().filter(|path| !path.contains(['"', '\\']));
        let path =
            path.ok_or_else(|| Failure::new("the path of PolyRPC has characters that cannot be written"))?;
        Ok(format!("path = \"{path}\""))
    }
}

/// Checks that the name is a valid package name and collides with nothing that the project uses.
fn parse_name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !text.starts_with(|c: char| c.is_ascii_alphabetic()) || !text.chars().all(is_plain) {
        return Err("expected a letter, and then letters, digits, - and _".to_owned());
    }
    match TAKEN.contains(&text.replace('-', "_").as_str()) {
        true => Err("the name is taken by Rust, by cargo or by what the project depends on".to_owned()),
        false => Ok(text.to_owned()),
    }
}

/// Files of a template: path and content.
type Template = &'static [(&'static str, &'static str)];

const COMMON: Template = &[
    (".gitignore", "/target\n"),
    (".dockerignore", "/target\n"),
    ("Dockerfile", include_str!("template/Dockerfile")),
    ("src/main.rs", include_str!("template/main.rs")),
];

const PROTO: Template = &[
    ("Cargo.toml", include_str!("template/proto/manifest.toml")),
    ("build.rs", include_str!("template/proto/build.rs")),
    ("proto/greeter.proto", include_str!("template/proto/greeter.proto")),
    ("src/lib.rs", include_str!("template/proto/lib.rs")),
    ("src/bin/client.rs", include_str!("template/proto/client.rs")),
    ("tests/greeter.rs", include_str!("template/proto/test.rs")),
];

const FUNCTIONS: Template = &[
    ("Cargo.toml", include_str!("template/functions/manifest.toml")),
    ("src/lib.rs", include_str!("template/functions/lib.rs")),
    ("src/bin/client.rs", include_str!("template/functions/client.rs")),
    ("tests/functions.rs", include_str!("template/functions/test.rs")),
];

/// Keywords, and names of crates that Rust, cargo and the project use.
const TAKEN: &[&str] = &[
    "abstract",
    "alloc",
    "as",
    "async",
    "await",
    "become",
    "box",
    "break",
    "build",
    "client",
    "const",
    "continue",
    "core",
    "crate",
    "deps",
    "do",
    "dyn",
    "else",
    "enum",
    "examples",
    "extern",
    "false",
    "final",
    "fn",
    "for",
    "gen",
    "if",
    "impl",
    "in",
    "incremental",
    "let",
    "loop",
    "macro",
    "match",
    "mod",
    "move",
    "mut",
    "override",
    "polyrpc",
    "polyrpc_build",
    "priv",
    "proc_macro",
    "pub",
    "ref",
    "return",
    "self",
    "serde",
    "static",
    "std",
    "struct",
    "super",
    "test",
    "tokio",
    "trait",
    "true",
    "try",
    "type",
    "typeof",
    "unsafe",
    "unsized",
    "use",
    "virtual",
    "where",
    "while",
    "yield",
];
