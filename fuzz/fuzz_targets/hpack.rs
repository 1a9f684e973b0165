#![no_main]

// It is compared with another decoder, which must not become a dependency of the crate.
#[path = "../../crates/testing/tests/corpus/hpack.rs"]
mod hpack;

libfuzzer_sys::fuzz_target!(|input: &[u8]| hpack::hpack(input));
