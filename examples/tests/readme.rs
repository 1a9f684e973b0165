//! The Rust code in the READMEs and the guides is taken from the examples.
//!
//! Each block follows a comment that names its file: `<!-- examples/hello_function.rs -->`.

use std::fs;
use std::path::Path;

#[test]
fn code_in_the_readmes_is_taken_from_the_examples() {
    for readme in [
        "README.md",
        "README.zh.md",
        "docs/guides/getting-started.md",
        "docs/guides/getting-started.zh.md",
        "docs/guides/messages.md",
        "docs/guides/urls.md",
        "docs/guides/from-rpcx.md",
        "docs/guides/from-brpc.md",
        "docs/guides/from-grpc.md",
        "docs/guides/gateways-and-web-pages.md",
        "docs/guides/methods-for-agents.md",
        "docs/guides/operating-a-server.md",
        "docs/guides/recording-and-replaying.md",
    ] {
        let blocks = blocks(&text(readme));
        assert!(!blocks.is_empty(), "{readme} shows no code");
        for Block { file, code } in blocks {
            let file = file.unwrap_or_else(|| panic!("{readme}: no file is named above\n{code}"));
            let known = unindented(&text(&file)).contains(&unindented(&code));
            assert!(known, "{readme}: this is not in {file}:\n{code}");
        }
    }
}

#[test]
fn readmes_fit_on_a_page() {
    for readme in ["README.md", "README.zh.md"] {
        let lines = text(readme).lines().count();
        assert!(lines <= 120, "{readme} has {lines} lines");
    }
}

/// A block of Rust code and its file.
struct Block {
    file: Option<String>,
    code: String,
}

fn blocks(text: &str) -> Vec<Block> {
    let (mut blocks, mut above, mut lines) = (Vec::new(), "", text.lines());
    while let Some(line) = lines.next() {
        if line == "```rust" {
            let file = above.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
            let code: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push(Block { file: file.map(str::to_owned), code: code.join("\n") });
        }
        above = line;
    }
    blocks
}

/// A block may show the body of a function without its indentation.
fn unindented(code: &str) -> String {
    code.lines().map(str::trim_start).collect::<Vec<_>>().join("\n")
}

fn text(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
