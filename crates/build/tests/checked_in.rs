//! Code that is checked in, of this crate's tests, of the command's demo services and its tests, of gRPC's standard services and of
//! etcd's: it must be what the `.proto`, or the `.fbs`, says. `BLESS=1 cargo test -p polyrpc-build --test checked_in` writes it anew.

use std::env;
use std::path::{Path, PathBuf};

use polyrpc_build::Config;

#[test]
fn the_tests_messages_are_fresh() {
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
fn the_demo_services_are_fresh() {
    assert_fresh(
        &Config::new()
            .files(["example.proto", "arith.proto", "helloworld.proto", "benchmark.proto"])
            .includes([dir("../cli/proto")])
            .include_file("mod.rs"),
        &dir("../cli/src/proto"),
    );
}

#[test]
fn the_test_service_of_the_command_is_fresh() {
    assert_fresh(
        &Config::new().files(["shapes.proto"]).includes([dir("../cli/tests/shapes")]).include_file("mod.rs"),
        &dir("../cli/tests/shapes/generated"),
    );
}

#[test]
fn the_messages_of_the_standard_services_are_fresh() {
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
fn the_services_of_etcd_are_fresh() {
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
fn the_tests_flatbuffers_are_fresh() {
    assert_fresh(
        &Config::new().files(["rich.fbs"]).includes([dir("tests/fbs")]).include_file("mod.rs"),
        &dir("../polyrpc/tests/rich"),
    );
}

#[test]
fn the_tests_values_are_fresh() {
    assert_fresh(
        &Config::new()
            .files(["values.proto"])
            .includes([dir("../polyrpc/tests/values")])
            .include_file("mod.rs"),
        &dir("../polyrpc/tests/values"),
    );
}

#[test]
fn the_messages_of_the_benchmark_are_fresh() {
    assert_fresh(
        &Config::new().files(["benchmark.proto"]).includes([dir("../../bench/proto")]),
        &dir("../../bench/src/generated"),
    );
}

#[test]
fn the_demo_services_of_flatbuffers_are_fresh() {
    assert_fresh(
        &Config::new().files(["benchmark.fbs"]).includes([dir("../cli/fbs")]).include_file("mod.rs"),
        &dir("../cli/src/fbs"),
    );
}

fn assert_fresh(config: &Config, dir: &Path) {
    let generated = config.generate().expect("the files are good");
    if env::var_os("BLESS").is_some() {
        generated.write(dir).expect("the sources can be written");
    }
    let stale: Vec<PathBuf> = generated.stale(dir).into_iter().map(|(path, _)| path).collect();
    assert!(stale.is_empty(), "not as the .proto says, run with BLESS=1: {stale:?}");
}

fn dir(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}
