//! Error messages for a `.proto` that cannot be used.

use std::path::Path;

use polyrpc_build::{Config, Error};

#[test]
fn name_collision_error_names_both_methods() {
    assert_eq!(
        failure("wrong/same_name.proto").to_string(),
        "wrong/same_name.proto:7:3: Twins.SayHello and Twins.say_hello are both `say_hello` in Rust; rename \
         one of them"
    );
}

#[test]
fn parse_errors_name_their_position() {
    let cases = [
        ("wrong/syntax.proto", "wrong/syntax.proto:4:9: expected an identifier, but found '='"),
        ("wrong/undefined.proto", "wrong/undefined.proto:4:3: name 'Nowhere' is not defined"),
        ("wrong/import.proto", "wrong/import.proto:3:1: import 'wrong/nowhere.proto' not found"),
    ];
    for (file, want) in cases {
        assert_eq!(failure(file).to_string(), want);
    }
}

#[test]
fn protobuf_editions_are_rejected_in_imports_too() {
    for (file, location) in [("wrong/edition.proto", "2:1"), ("wrong/imports_edition.proto", "2:1")] {
        assert_eq!(
            failure(file).to_string(),
            format!(
                "wrong/edition.proto:{location}: protobuf editions are not supported; declare `syntax = \"proto3\";` or \
                 `\"proto2\"`"
            )
        );
    }
}

#[test]
fn missing_file_error_names_the_searched_directories() {
    let error = Config::new().files(["nowhere.proto"]).includes(["some", "where"]).generate().unwrap_err();
    assert_eq!(error.to_string(), "nowhere.proto does not exist, neither as given nor below some where");
}

#[test]
fn file_outside_the_include_paths_is_an_error() {
    let file = proto_dir().join("root.proto");
    let error = Config::new().files([&file]).includes(["src"]).generate().unwrap_err();
    assert_eq!(error.to_string(), format!("file '{}' is not in any include path", file.display()));
}

#[test]
fn empty_configuration_is_an_error() {
    assert_eq!(Config::new().generate().unwrap_err().to_string(), "no .proto file was given");
}

#[test]
fn unwritable_output_error_names_the_cause() {
    let generated = config("root.proto").services(false).generate().expect("a good file");
    let not_a_directory = proto_dir().join("root.proto");
    let error = generated.write(&not_a_directory).unwrap_err();
    assert!(error.to_string().starts_with("cannot write "), "{error}");
    let shown = format!("{error:?}");
    assert!(shown.len() > error.to_string().len(), "a build script shows the reason too: {shown}");
}

#[test]
fn error_is_a_static_send_sync_error() {
    fn assert_error<E: std::error::Error + Send + Sync + 'static>() {}
    assert_error::<Error>();
}

fn failure(file: &str) -> Error {
    config(file).generate().expect_err("the file is wrong")
}

fn config(file: &str) -> Config {
    Config::new().files([proto_dir().join(file)]).includes([proto_dir()])
}

fn proto_dir() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/proto"))
}
