use polyrpc::payload::TypeSchema;
use polyrpc::payload::schema::Pool;
use polyrpc_describe::{Content, ProtoFiles};
use protox::file::{File, FileResolver};
use serde_json::value::RawValue;

use super::*;

struct Source;

impl FileResolver for Source {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        File::from_source(name, LIBRARY)
    }
}

const LIBRARY: &str = r#"
    syntax = "proto3";
    package library;
    message Book { string name = 1; int64 pages = 2; Book sequel = 3; }
    message Key { string name = 1; Format format = 2; }
    enum Format { PAPER = 0; FILE = 1; }
    service Library {
      // Finds a book
      // by its name.
      rpc Find(Key) returns (Book) { option idempotency_level = NO_SIDE_EFFECTS; }
      rpc Remove(Key) returns (Book) { option idempotency_level = IDEMPOTENT; option deprecated = true; }
      rpc List(Key) returns (stream Book);
      rpc Upload(stream Book) returns (Key);
    }
"#;

fn methods() -> Vec<Method> {
    let mut compiler = protox::Compiler::with_file_resolver(Source);
    compiler.include_source_info(true).open_file("library.proto").unwrap();
    ProtoFiles::new(Pool::decode(&compiler.encode_file_descriptor_set()).unwrap()).methods()
}

fn select(methods: &[Method], patterns: &[&str]) -> Result<Tools, ToolsError> {
    let patterns = patterns.iter().map(|pattern| pattern.parse().unwrap()).collect();
    Tools::select(methods, &Settings::new(patterns))
}

#[test]
fn tools_are_what_the_patterns_select() {
    let methods = methods();
    let names = |tools: &Tools| tools.all().iter().map(|tool| tool.name().to_owned()).collect::<Vec<_>>();
    let tools = select(&methods, &["library.*"]).unwrap();
    assert_eq!(names(&tools), ["library_Library_Find", "library_Library_List", "library_Library_Remove"]);
    let target = "library.Library/Upload".to_owned();
    assert_eq!(tools.omitted(), [OmittedMethod { target, reason: TAKES_STREAM }]);
    assert_eq!(names(&select(&methods, &["library.Library/Find"]).unwrap()), ["library_Library_Find"]);
    assert_eq!(names(&select(&methods, &[]).unwrap()), Vec::<String>::new());
    // The same method in two sets of files is one tool.
    let twice: Vec<_> = methods.iter().chain(&methods).cloned().collect();
    assert_eq!(names(&select(&twice, &["library.*"]).unwrap()).len(), 3);
    for (pattern, error) in [
        ("library.Libary", "no method matches `library.Libary`"),
        ("library.Library/Upload", "`library.Library/Upload` cannot be a tool: the method takes a stream"),
    ] {
        assert_eq!(select(&methods, &[pattern]).unwrap_err().to_string(), error);
    }
}

#[test]
fn tool_is_described_by_its_declaration() {
    let tools = select(&methods(), &["*"]).unwrap();
    let find = &tools.find("library_Library_Find").unwrap().description;
    assert_eq!(find["title"], "library.Library/Find");
    assert_eq!(find["description"], "Finds a book\nby its name.");
    let input = &find["inputSchema"];
    assert_eq!(input["properties"]["format"], json!({ "$ref": "#/$defs/library.Format" }));
    assert_eq!(input["$defs"].as_object().unwrap().keys().collect::<Vec<_>>(), ["library.Format"]);
    let output = &find["outputSchema"];
    assert_eq!(output["properties"]["sequel"], json!({ "$ref": "#/$defs/library.Book" }));
    assert_eq!(output["$defs"]["library.Book"]["properties"]["pages"]["type"], "string");
    assert_eq!(
        find["annotations"],
        json!({ "readOnlyHint": true, "destructiveHint": false, "idempotentHint": true })
    );
    let remove = &tools.find("library_Library_Remove").unwrap().description;
    assert_eq!(remove["annotations"], json!({ "idempotentHint": true }));
    assert_eq!(remove["description"], "Calls library.Library/Remove.\n\nDeprecated.");
    let list = &tools.find("library_Library_List").unwrap().description;
    assert_eq!(list["outputSchema"]["properties"]["messages"]["items"]["$ref"], "#/$defs/library.Book");
    assert!(list["annotations"].is_null());
}

#[test]
fn arguments_of_functions_have_numbers() {
    let types = vec![TypeSchema::Int(64), TypeSchema::Optional(Box::new(TypeSchema::String))];
    let returned = Content::Type(TypeSchema::Int(64));
    let function = Method::new("", "f", Content::Type(TypeSchema::Tuple(types)), returned);
    let tools = select(&[function], &["f"]).unwrap();
    let tool = &tools.all()[0];
    let schema = &tool.description["inputSchema"];
    assert_eq!(schema["required"], json!(["arg1"]));
    assert_eq!(schema["properties"]["arg1"]["type"], "integer");
    assert_eq!(tool.output, Output::Value);
    assert_eq!(tool.description["outputSchema"]["properties"]["result"]["type"], "integer");
    let message = |text: &str| {
        let arguments = RawValue::from_string(text.to_owned()).unwrap();
        tool.message(Some(&arguments))
    };
    assert_eq!(message(r#"{"arg2":"x","arg1":1.50}"#).unwrap(), r#"[1.50,"x"]"#);
    assert_eq!(message(r#"{"arg1":1}"#).unwrap(), "[1,null]");
    assert_eq!(message("{}").unwrap_err(), "the argument `arg1` is missing");
    assert_eq!(message(r#"{"arg1":1,"arg3":1}"#).unwrap_err(), "there is no argument `arg3`");
    assert_eq!(message("[1]").unwrap_err(), "the arguments are not an object");
}

#[test]
fn value_that_is_not_an_object_is_wrapped_in_a_member() {
    let text = || Content::Type(TypeSchema::String);
    let tools = select(&[Method::new("S", "M", text(), text())], &["S"]).unwrap();
    let tool = &tools.all()[0];
    assert_eq!((&tool.input, tool.output), (&Input::Value, Output::Value));
    let arguments = RawValue::from_string(r#"{"value":"a"}"#.to_owned()).unwrap();
    assert_eq!(tool.message(Some(&arguments)).unwrap(), "\"a\"");
    let unknown = || Content::Type(TypeSchema::Any);
    let tools = select(&[Method::new("S", "M", unknown(), unknown())], &["S"]).unwrap();
    assert_eq!(tools.all()[0].output, Output::Any);
    assert!(tools.all()[0].description["outputSchema"].is_null());
}
