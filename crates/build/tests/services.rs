//! The traits of services, and the descriptors beside them.

use std::path::{Path, PathBuf};

use buffa::Message;
use buffa_codegen::generated::descriptor::FileDescriptorSet;
use polyrpc_build::Config;

#[test]
fn service_becomes_a_trait() {
    assert_eq!(traits_of("test.rich.rs"), include_str!("expected/rich_services.rs"));
}

#[test]
fn services_of_imported_files_are_not_generated() {
    let common = file("test.rich.common.rs");
    assert!(common.contains("pub struct Stamp"));
    assert!(!common.contains("trait"));
    assert!(!common.contains("FILE_DESCRIPTOR_SET"));
}

#[test]
fn imported_files_are_generated_if_their_types_are_used() {
    let names: Vec<PathBuf> = generate().into_iter().map(|(name, _)| name).collect();
    let want = ["_.rs", "test.rich.rs", "test.rich.common.rs", "test.rich.common.deep.rs", "mod.rs"];
    assert_eq!(names, want.map(PathBuf::from));
}

#[test]
fn method_can_be_marked_as_blocking() {
    let name = traits_of("test.rich.rs")
        .lines()
        .find_map(|line| Some(line.trim().strip_prefix("#[rpc(name = \"")?.strip_suffix("\")]")?.to_owned()))
        .expect("a method");
    let generated =
        config().blocking([format!("test.rich.RichService.{name}")]).generate().expect("good files");
    let text =
        &generated.files.iter().find(|(path, _)| path == Path::new("test.rich.rs")).expect("the package").1;
    assert_eq!(text.matches(", blocking)]").count(), 1, "{name}");
}

#[test]
fn streaming_method_takes_or_returns_a_stream() {
    let text = chat(&Config::new());
    for method in [
        "async fn say(&self, cx: &mut ::polyrpc::Context, request: Line) -> ::polyrpc::Result<Line>;",
        "async fn listen(&self, cx: &mut ::polyrpc::Context, request: Line) \
         -> ::polyrpc::Result<::polyrpc::Streaming<Line>>;",
        "async fn record(&self, cx: &mut ::polyrpc::Context, requests: ::polyrpc::Streaming<Line>) \
         -> ::polyrpc::Result<Line>;",
        "async fn talk(&self, cx: &mut ::polyrpc::Context, requests: ::polyrpc::Streaming<Line>) \
         -> ::polyrpc::Result<::polyrpc::Streaming<Line>>;",
    ] {
        assert!(text.contains(method), "{method}\n\n{text}");
    }
}

#[test]
fn streaming_methods_can_be_skipped() {
    let text = chat(&Config::new().skip_streaming(true));
    assert_eq!(text.matches("async fn").count(), 1);
    assert!(text.contains("async fn say"));
}

#[test]
fn external_packages_are_not_generated() {
    let generated = config().extern_path("test.rich.common", "::common").generate().expect("good files");
    let names: Vec<&Path> = generated.files.iter().map(|(name, _)| name.as_path()).collect();
    assert_eq!(names, ["_.rs", "test.rich.rs", "mod.rs"].map(Path::new));
    assert!(generated.files[1].1.contains("-> ::polyrpc::Result<::common::Stamp>;"));
}

#[test]
fn every_file_read_is_listed_as_an_input() {
    let inputs = config().generate().expect("good files").inputs;
    let mut names: Vec<&Path> =
        inputs.iter().map(|input| input.strip_prefix(proto_dir()).expect("below the include")).collect();
    names.sort();
    let want = [
        "more.proto",
        "rich/common.proto",
        "rich/far.proto",
        "rich/unused.proto",
        "rich.proto",
        "root.proto",
    ];
    assert_eq!(names, want.map(Path::new));
}

#[test]
fn descriptor_set_includes_imports_and_options_but_no_comments() {
    let set = FileDescriptorSet::decode_from_slice(&descriptor_set(&file("test.rich.rs"))).expect("a set");
    let names: Vec<&str> = set.file.iter().filter_map(|file| file.name.as_deref()).collect();
    let want = [
        "google/protobuf/descriptor.proto",
        "google/protobuf/timestamp.proto",
        "google/protobuf/wrappers.proto",
        "rich/far.proto",
        "rich/common.proto",
        "rich/unused.proto",
        "root.proto",
        "rich.proto",
        "more.proto",
    ];
    assert_eq!(names, want);
    assert!(set.file.iter().all(|file| file.source_code_info.is_unset()));

    let rich = &set.file[7];
    let moves = rich.service[0].method[2].options.encode_to_vec();
    assert!(moves.ends_with(b"it moves"), "the custom option is lost: {}", moves.escape_ascii());
}

fn traits_of(name: &str) -> String {
    let text = file(name);
    let end = text.find("/// A shape").expect("the first message");
    text[..end].to_owned()
}

/// The code of the streaming service, each method on one line.
fn chat(config: &Config) -> String {
    let config = config.clone().files(["chat.proto"]).includes([proto_dir()]);
    let generated = config.generate().expect("a good file");
    let words: Vec<&str> = generated.files[0].1.split_whitespace().collect();
    words.join(" ").replace("( &self", "(&self").replace(", )", ")")
}

/// The value of the constant in generated code.
fn descriptor_set(text: &str) -> Vec<u8> {
    let parsed: syn::File = syn::parse_str(text).expect("Rust");
    let constant = parsed.items.into_iter().find_map(|item| match item {
        syn::Item::Const(item) if item.ident == "FILE_DESCRIPTOR_SET" => Some(*item.expr),
        _ => None,
    });
    match constant {
        Some(syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::ByteStr(bytes), .. })) => bytes.value(),
        _ => panic!("the constant is not a byte string"),
    }
}

fn file(name: &str) -> String {
    let found = generate().into_iter().find(|(file, _)| file == Path::new(name));
    found.expect("a file of this name").1
}

fn generate() -> Vec<(PathBuf, String)> {
    config().generate().expect("good files").files
}

fn config() -> Config {
    Config::new().files(["rich.proto", "more.proto"]).includes([proto_dir()]).include_file("mod.rs")
}

fn proto_dir() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/proto"))
}
