//! Checks that the generated code that is checked in, of this crate's tests, the command's demo services and its tests,
//! gRPC's standard services and etcd's, is up to date with its `.proto` or `.fbs`.
//! `BLESS=1 cargo test -p polyrpc-build --test checked_in` updates it.

use std::env;
use std::path::{Path, PathBuf};

use polyrpc_build::Config;

#[test]
fn generated_test_messages_are_current() {
    assert_fresh(
        &Config::new()
            .files(["rich.proto", "more.proto", "benchmark.proto"])
            .includes([dir("tests/proto"), dir("../cli/proto")])
            .bytes_fields(["test.rich.Everything.some_bytes"])
            .services(false)
            .include_file("mod.rs"),
        &dir("tests/generated"),
    );
}

#[test]
fn generated_demo_services_are_current() {
    assert_fresh(
        &Config::new()
            .files(["example.proto", "arith.proto", "helloworld.proto", "benchmark.proto"])
            .includes([dir("../cli/proto")])
            .include_file("mod.rs"),
        &dir("../cli/src/proto"),
    );
}

#[test]
fn generated_test_service_of_the_command_is_current() {
    assert_fresh(
        &Config::new()
            .files(["shapes.proto"])
            .includes([dir("../cli/tests/command/shapes")])
            .include_file("mod.rs"),
        &dir("../cli/tests/command/shapes/generated"),
    );
}

#[test]
fn generated_standard_messages_are_current() {
    assert_fresh(
        &Config::new()
            .files(["grpc/health/v1/health.proto", "grpc/reflection/v1/reflection.proto"])
            .includes([dir("../grpc-messages/proto")])
            .bytes_fields(["."])
            .services(false)
            .include_file("mod.rs"),
        &dir("../grpc-messages/src/proto"),
    );
}

#[test]
fn generated_etcd_services_are_current() {
    assert_fresh(
        &Config::new()
            .files(["rpc.proto", "kv.proto"])
            .includes([dir("../discovery/proto/etcd")])
            .bytes_fields(["."])
            .preserve_unknown_fields(false)
            .include_file("mod.rs"),
        &dir("../discovery/src/etcd/proto"),
    );
}

#[test]
fn generated_test_flatbuffers_are_current() {
    assert_fresh(
        &Config::new().files(["rich.fbs"]).includes([dir("tests/fbs")]).include_file("mod.rs"),
        &dir("../polyrpc/tests/rich"),
    );
}

#[test]
fn generated_test_values_are_current() {
    assert_fresh(
        &Config::new()
            .files(["values.proto"])
            .includes([dir("../polyrpc/tests/values")])
            .include_file("mod.rs"),
        &dir("../polyrpc/tests/values"),
    );
}

#[test]
fn generated_benchmark_messages_are_current() {
    assert_fresh(
        &Config::new().files(["benchmark.proto"]).includes([dir("../../bench/proto")]),
        &dir("../../bench/src/generated"),
    );
}

#[test]
fn generated_flatbuffers_demo_services_are_current() {
    assert_fresh(
        &Config::new().files(["benchmark.fbs"]).includes([dir("../cli/fbs")]).include_file("mod.rs"),
        &dir("../cli/src/fbs"),
    );
}

fn assert_fresh(config: &Config, dir: &Path) {
    let generated = config.generate().expect("the files are valid");
    if env::var_os("BLESS").is_some() {
        generated.write(dir).expect("the sources can be written");
    }
    let stale: Vec<PathBuf> = generated.stale(dir).into_iter().map(|(path, _)| path).collect();
    assert!(stale.is_empty(), "out of date, update them with BLESS=1: {stale:?}");
}

fn dir(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}
