//! What the generator says about a `.proto` that it cannot use.

use std::path::Path;

use polyrpc_build::{Config, Error};

#[test]
fn methods_that_get_one_name_in_rust_are_both_named() {
    assert_eq!(
        failure("wrong/same_name.proto").to_string(),
        "wrong/same_name.proto:7:3: Twins.SayHello and Twins.say_hello are both `say_hello` in Rust; rename \
         one of them"
    );
}

#[test]
fn mistakes_in_a_file_are_told_with_their_place() {
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
fn an_edition_is_refused_in_words_also_in_an_imported_file() {
    for (file, place) in [("wrong/edition.proto", "2:1"), ("wrong/imports_edition.proto", "2:1")] {
        assert_eq!(
            failure(file).to_string(),
            format!(
                "wrong/edition.proto:{place}: protobuf editions are not supported; declare `syntax = \"proto3\";` or \
                 `\"proto2\"`"
            )
        );
    }
}

#[test]
fn a_file_that_does_not_exist_is_told_with_where_it_was_looked_for() {
    let error = Config::new().files(["nowhere.proto"]).includes(["some", "where"]).generate().unwrap_err();
    assert_eq!(error.to_string(), "nowhere.proto does not exist, neither here nor below some where");
}

#[test]
fn a_file_outside_of_the_includes_is_told_as_such() {
    let file = proto_dir().join("root.proto");
    let error = Config::new().files([&file]).includes(["src"]).generate().unwrap_err();
    assert_eq!(error.to_string(), format!("file '{}' is not in any include path", file.display()));
}

#[test]
fn nothing_to_do_is_an_error() {
    assert_eq!(Config::new().generate().unwrap_err().to_string(), "no .proto file was named");
}

#[test]
fn a_file_that_cannot_be_written_is_told_with_the_reason() {
    let generated = config("root.proto").services(false).generate().expect("a good file");
    let not_a_directory = proto_dir().join("root.proto");
    let error = generated.write(&not_a_directory).unwrap_err();
    assert!(error.to_string().starts_with("cannot write "), "{error}");
    let shown = format!("{error:?}");
    assert!(shown.len() > error.to_string().len(), "a build script shows the reason too: {shown}");
}

#[test]
fn an_error_can_go_wherever_errors_go() {
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
