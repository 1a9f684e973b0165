//! `polyrpc new`, as users run it. `interop/newcomer/new_project` builds what it writes, and runs its tests.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::running::{Ran, TempDir};

fn new(dir: &Path, arguments: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_polyrpc"));
    command.arg("new").args(arguments).current_dir(dir).output().unwrap().into()
}

#[test]
fn new_project_has_a_service_a_client_a_test_and_a_container_file() {
    let dir = TempDir::new();
    for (kind, more) in [
        ("--proto", &["build.rs", "proto/greeter.proto", "tests/greeter.rs"][..]),
        ("--functions", &["tests/functions.rs"]),
    ] {
        let name = format!("my-project{kind}");
        let ran = new(dir.path(), &[&name, kind]);
        assert_eq!(
            ran.stdout,
            format!("wrote {name}; next: cd {name} && cargo test && cargo run\n"),
            "{ran:?}"
        );
        let common = [
            "Cargo.toml",
            "Dockerfile",
            ".dockerignore",
            ".gitignore",
            "src/lib.rs",
            "src/main.rs",
            "src/bin/client.rs",
        ];
        for file in common.iter().chain(more) {
            let text = fs::read_to_string(dir.path().join(&name).join(file))
                .unwrap_or_else(|error| panic!("{file}: {error}"));
            assert!(!text.contains("{{"), "{file}:\n{text}");
        }
        let manifest = fs::read_to_string(dir.path().join(&name).join("Cargo.toml")).unwrap();
        assert!(manifest.contains("polyrpc = { git = \"https://github.com/"), "{manifest}");
    }
}

#[test]
fn existing_directory_and_invalid_name_are_rejected() {
    let dir = TempDir::new();
    fs::create_dir(dir.path().join("mine")).unwrap();
    let ran = new(dir.path(), &["mine"]);
    assert!(ran.stderr.starts_with("error: cannot write mine: ") && ran.code == 1, "{ran:?}");
    for name in ["", "1st", "a b", "../a", "fn", "tokio", "polyrpc-build", "client"] {
        let ran = new(dir.path(), &[name]);
        assert_eq!(ran.code, 2, "{name}: {ran:?}");
    }
    let ran = new(dir.path(), &["lost", "--checkout", "nowhere"]);
    assert!(ran.stderr.contains("cannot find PolyRPC in nowhere") && ran.code == 1, "{ran:?}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left behind");
}
