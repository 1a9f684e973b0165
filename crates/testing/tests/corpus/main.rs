//! Replays the fuzzer's corpus, `fuzz/corpus`, without the fuzzer.
//!
//! Its inputs come from two sources: [`seeds`], which
//! `cargo test -p polyrpc-testing --test corpus -- --ignored` rewrites, and inputs that once found a bug,
//! named after it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use polyrpc_testing as fuzz;
use polyrpc_testing::{TARGETS, Target};

mod blocks;
mod hpack;
mod seeds;

#[test]
fn no_corpus_input_panics() {
    for (name, target) in targets() {
        let inputs = files(&corpus(name));
        assert!(!inputs.is_empty(), "{name} has no corpus");
        for path in inputs {
            // Printed only if the target panics.
            println!("{}", path.display());
            target(&fs::read(&path).expect("a readable file"));
        }
    }
}

#[test]
fn very_short_inputs_never_panic() {
    for (_, target) in targets() {
        for length in 0..4 {
            target(&[0; 4][..length]);
        }
    }
}

#[test]
fn every_target_has_a_fuzz_binary() {
    let fuzzed: BTreeSet<_> = files(&folder("fuzz_targets")).iter().map(|path| stem(path)).collect();
    assert_eq!(fuzzed, targets().map(|(name, _)| name.to_owned()).collect());
}

#[test]
fn random_hpack_blocks_are_decoded_alike_by_both_decoders() {
    let mut random = blocks::Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..4000 {
        hpack::hpack(&blocks::conversation(&mut random));
    }
}

#[test]
fn transcoder_descriptors_are_current() {
    assert!(fuzz::RICH == seeds::rich(), "{} does not match its source", rich().display());
}

/// Rewrites the seeds after a change. Other files of the corpus are kept.
#[test]
#[ignore = "it writes files: `cargo test -p polyrpc-testing --test corpus -- --ignored`"]
fn write_seeds() {
    fs::write(rich(), seeds::rich()).expect("a writable file");
    for (target, seeds) in seeds::all() {
        let folder = corpus(target);
        fs::create_dir_all(&folder).expect("a writable folder");
        for (name, bytes) in seeds {
            assert!(bytes.len() <= MAX_LENGTH, "{target}/{name} is {} bytes long", bytes.len());
            fs::write(folder.join(name), bytes).expect("a writable file");
        }
    }
}

/// The targets of the crate, the one that needs another decoder, and the one behind a feature.
fn targets() -> impl Iterator<Item = (&'static str, Target)> {
    TARGETS.into_iter().chain([("hpack", hpack::hpack as Target), ("kcp", fuzz::kcp)])
}

/// The maximum input length of the fuzzer (`./dev fuzz`).
const MAX_LENGTH: usize = 4096;

fn rich() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "src", "rich.binpb"].iter().collect()
}

fn corpus(target: &str) -> PathBuf {
    folder("corpus").join(target)
}

fn folder(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "..", "fuzz", name].iter().collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    files.sort();
    files
}

fn stem(path: &Path) -> String {
    path.file_stem().and_then(|stem| stem.to_str()).expect("a plain name").to_owned()
}
