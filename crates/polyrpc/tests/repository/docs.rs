//! Every file and function that the documents name exists.
//!
//! A document names a function as `server/listen.rs: accept` or `server/listener_context.rs: ListenerContext::new`, and a file as
//! `server/listen.rs`, relative to this crate's source folder, or with the name of another crate's folder
//! before it: `core/call.rs` is `crates/core/src/call.rs`. In `CONTRIBUTING.md` paths begin at the root of the repository.

use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn every_file_and_function_named_in_the_documents_exists() {
    let documents = documents(&root().join("docs"));
    assert!(documents.len() > 10, "where are the documents?");
    let mut missing = Vec::new();
    for document in documents {
        // A mention may span two lines.
        let text = fs::read_to_string(&document).expect("a document is text").replace('\n', " ");
        for mention in mentions(&text) {
            if let Err(why) = mention.check() {
                missing.push(format!("{}: {why}", document.display()));
            }
        }
    }
    assert!(missing.is_empty(), "\n{}", missing.join("\n"));
}

#[test]
fn every_file_named_in_contributing_from_the_root_exists() {
    let text = fs::read_to_string(root().join("CONTRIBUTING.md")).expect("the document exists");
    let paths = rooted_paths(&text);
    assert!(paths.len() > 50, "where are the paths? {paths:?}");
    let missing: Vec<_> = paths.iter().filter(|path| !root().join(path).exists()).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn path_with_alternatives_names_a_file_for_each() {
    let text = "`crates/a/{b,c/d}.rs`, `crates/NAME/mod.rs`, `d.rs` and `examples/e.rs`";
    assert_eq!(rooted_paths(text), ["crates/a/b.rs", "crates/a/c/d.rs", "examples/e.rs"]);
}

#[test]
fn mention_is_a_file_or_a_function_in_a_file() {
    let text = "`a/b.rs: c`, `b.rs: T::c` and `b.rs`, but not `b.rs a`, `cargo test` or b.rs: d";
    let mentions: Vec<_> = mentions(text).collect();
    let function = |file, of, name| Mention { file, function: Some(Function { of, name }) };
    assert_eq!(
        mentions,
        [
            function("a/b.rs", None, "c"),
            function("b.rs", Some("T"), "c"),
            Mention { file: "b.rs", function: None },
        ]
    );
}

#[test]
fn missing_name_is_reported() {
    let known = |text: &'static str| mentions(text).all(|mention| mention.check().is_ok());
    assert!(known("`server/listener_context.rs: ListenerContext::new` `wire/sniff.rs: sniff`"));
    assert!(!known("`server/listener_context.rs: ListenerContext::ne`"));
    assert!(!known("`server/listener_context.rs: ListenrContext::new`"));
    assert!(!known("`server/lsten.rs`"));
}

/// A file, or a function in one.
#[derive(Debug, PartialEq)]
struct Mention<'a> {
    file: &'a str,
    function: Option<Function<'a>>,
}

#[derive(Debug, PartialEq)]
struct Function<'a> {
    of: Option<&'a str>,
    name: &'a str,
}

/// All mentions of a document: they are in backticks.
fn mentions(text: &str) -> impl Iterator<Item = Mention<'_>> {
    text.split('`').skip(1).step_by(2).filter_map(mention)
}

fn mention(code: &str) -> Option<Mention<'_>> {
    let (path, function) = match code.split_once(": ") {
        None => (code, None),
        Some((path, name)) => {
            let (of, name) = name.rsplit_once("::").map_or((None, name), |(of, name)| (Some(of), name));
            (path, Some(Function { of, name }))
        }
    };
    let is_path = path.ends_with(".rs") && !path.contains(char::is_whitespace);
    is_path.then_some(Mention { file: path, function })
}

impl Mention<'_> {
    fn check(&self) -> Result<(), String> {
        let code = self.sources().map(fs::read_to_string).find_map(Result::ok);
        let code = code.ok_or_else(|| format!("there is no file {}", self.file))?;
        let Some(Function { of, name }) = &self.function else { return Ok(()) };
        let declares = |keywords: &[&str], name: &str| {
            keywords.iter().any(|keyword| {
                let declaration = format!("{keyword} {name}");
                code.match_indices(&declaration).any(|(at, _)| ends_a_word(&code[at + declaration.len()..]))
            })
        };
        if of.is_some_and(|of| !declares(&["struct", "enum", "trait", "type"], of)) {
            return Err(format!("{} declares no {}", self.file, of.unwrap_or_default()));
        }
        match declares(&["fn", "macro_rules!"], name) {
            true => Ok(()),
            false => Err(format!("{} has no function {name}", self.file)),
        }
    }

    /// Candidate paths of the file.
    fn sources(&self) -> impl Iterator<Item = PathBuf> {
        let own = root().join("crates/polyrpc/src").join(self.file);
        let other = self
            .file
            .split_once('/')
            .map(|(krate, file)| root().join("crates").join(krate).join("src").join(file));
        [Some(own), other, Some(root().join(self.file))].into_iter().flatten()
    }
}

/// Files in backticks whose path begins at the root of the repository. A path with `{a,b}` names several files, one with a
/// word in capitals none.
fn rooted_paths(text: &str) -> Vec<String> {
    let is_rooted = |path: &&str| {
        path.ends_with(".rs") && ROOTS.iter().any(|root| path.starts_with(root)) && !has_placeholder(path)
    };
    let paths = text.split('`').skip(1).step_by(2).filter(is_rooted);
    paths.flat_map(alternatives).collect()
}

const ROOTS: [&str; 4] = ["crates/", "examples/", "attack/", "interop/"];

fn has_placeholder(path: &str) -> bool {
    let mut words = path.split(|c: char| !c.is_alphanumeric());
    words.any(|word| word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase()))
}

/// Expands the first `{a,b}` of a path.
fn alternatives(path: &str) -> Vec<String> {
    let parts = path.split_once('{').and_then(|(start, rest)| Some((start, rest.split_once('}')?)));
    match parts {
        Some((start, (names, end))) => names
            .split(',')
            .map(|name| format!("{start}{name}{end}"))
            .flat_map(|path| alternatives(&path))
            .collect(),
        None => vec![path.to_owned()],
    }
}

fn ends_a_word(rest: &str) -> bool {
    !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}

fn documents(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder is there").map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let texts = files.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    texts.chain(folders.iter().flat_map(|folder| documents(folder))).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
