use polyrpc::payload::TypeSchema;

use super::*;
use crate::definitions::tests::files;

const LIBRARY: &str = r#"
    syntax = "proto3";
    package library;
    import "google/protobuf/descriptor.proto";
    import "google/protobuf/field_mask.proto";
    message HttpRule {
      string get = 2; string put = 3; string post = 4; string delete = 5; string patch = 6;
      string body = 7; string response_body = 12; repeated HttpRule additional_bindings = 11;
      CustomHttpPattern custom = 8;
    }
    message CustomHttpPattern { string kind = 1; string path = 2; }
    extend google.protobuf.MethodOptions { HttpRule http = 72295728; }
    message Book { string name = 1; int64 pages = 2; Book sequel = 3; }
    message Get { string name = 1; google.protobuf.FieldMask read_mask = 2; Filter filter = 3; repeated int32 ids = 4; }
    message Filter { string author = 1; map<string, string> more = 2; Filter inner = 3; }
    message Change { Book book = 1; bool force = 2; string shelf = 3; }
    service Library {
      // Finds a book.
      rpc Find(Get) returns (Book) {
        option (http) = { get: "/v1/{name=shelves/*/books/*}" additional_bindings { get: "/v1/book/{name}" } };
      }
      rpc Add(Change) returns (Book) {
        option (http) = { post: "/v1/{shelf}/books:add" body: "*" response_body: "name" };
        option deprecated = true;
      }
      rpc Update(Change) returns (Book) { option (http) = { patch: "/v1/books" body: "book" }; }
      rpc Odd(Change) returns (Book) { option (http) = { custom { kind: "LOCK" path: "/v1/lock" } }; }
      rpc Plain(Book) returns (Book);
      rpc List(Get) returns (stream Book);
      rpc Upload(stream Book) returns (Get);
    }
"#;

fn document() -> Value {
    OpenApi::new("Library").version("3").server("http://h:1").document(&files(LIBRARY).methods()).unwrap()
}

#[test]
fn document_has_a_path_for_each_rule() {
    let document = document();
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["info"]["version"], "3");
    assert_eq!(document["servers"], json!([{ "url": "http://h:1" }]));
    let find = &document["paths"]["/v1/shelves/{name_1}/books/{name_2}"]["get"];
    assert_eq!(
        (&find["operationId"], &find["description"]),
        (&json!("library.Library.Find"), &json!("Finds a book."))
    );
    let names: Vec<_> = find["parameters"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    let query = [
        "name_1",
        "name_2",
        "readMask",
        "filter.author",
        "filter.inner.author",
        "filter.inner.inner.author",
        "ids",
    ];
    assert_eq!(names, query);
    assert_eq!(find["parameters"][6]["schema"]["type"], "array");
    let again = &document["paths"]["/v1/book/{name}"]["get"];
    assert_eq!(again["operationId"], "library.Library.Find_2");
    let add = &document["paths"]["/v1/{shelf}/books:add"]["post"];
    let body = &add["requestBody"]["content"]["application/json"]["schema"]["properties"];
    assert_eq!(body.as_object().unwrap().keys().collect::<Vec<_>>(), ["book", "force"]);
    assert_eq!(add["responses"]["200"]["content"]["application/json"]["schema"], json!({ "type": "string" }));
    assert_eq!(add["deprecated"], true);
    let update = &document["paths"]["/v1/books"]["patch"];
    assert_eq!(
        update["requestBody"]["content"]["application/json"]["schema"],
        json!({ "$ref": "#/components/schemas/library.Book.canonical" })
    );
    assert_eq!(update["parameters"].as_array().unwrap().len(), 2);
}

#[test]
fn id_of_a_further_binding_is_not_that_of_another_method() {
    let source = r#"
        syntax = "proto3";
        package library;
        import "google/protobuf/descriptor.proto";
        message HttpRule { string get = 2; repeated HttpRule additional_bindings = 11; }
        extend google.protobuf.MethodOptions { HttpRule http = 72295728; }
        message Book { string name = 1; }
        service Library {
          rpc Find(Book) returns (Book) {
            option (http) = { get: "/v1/a" additional_bindings { get: "/v1/b" } };
          }
          rpc Find_2(Book) returns (Book) { option (http) = { get: "/v1/c" }; }
        }
    "#;
    let document = OpenApi::new("Library").document(&files(source).methods()).unwrap();
    for (path, id) in [
        ("/v1/a", "library.Library.Find"),
        ("/v1/b", "library.Library.Find_3"),
        ("/v1/c", "library.Library.Find_2"),
    ] {
        assert_eq!(document["paths"][path]["get"]["operationId"], id);
    }
}

#[test]
fn wildcards_without_a_variable_are_parameters_wherever_they_are() {
    let source = r#"
        syntax = "proto3";
        package library;
        import "google/protobuf/descriptor.proto";
        message HttpRule { string get = 2; }
        extend google.protobuf.MethodOptions { HttpRule http = 72295728; }
        message Book { string name = 1; }
        service Library {
          rpc Find(Book) returns (Book) { option (http) = { get: "/v1/*/books/{name}/*:read" }; }
          rpc Walk(Book) returns (Book) { option (http) = { get: "/v1/*/**" }; }
        }
    "#;
    let document = OpenApi::new("Library").document(&files(source).methods()).unwrap();
    for (path, wanted) in [
        ("/v1/{any_1}/books/{name}/{any_2}:read", &["any_1", "name", "any_2"][..]),
        ("/v1/{any_1}/{any_2}", &["any_1", "any_2", "name"]),
    ] {
        let parameters = document["paths"][path]["get"]["parameters"].as_array();
        let names: Vec<_> = parameters.unwrap().iter().map(|one| &one["name"]).collect();
        assert_eq!(names, wanted, "{path}");
    }
}

#[test]
fn method_without_a_rule_is_a_post_in_the_listeners_dialect() {
    let document = document();
    let plain = &document["paths"]["/library.Library/Plain"]["post"];
    let schema = json!({ "$ref": "#/components/schemas/library.Book" });
    assert_eq!(plain["requestBody"]["content"]["application/json"]["schema"], schema);
    assert_eq!(plain["responses"]["200"]["content"]["application/json"]["schema"], schema);
    let schemas = &document["components"]["schemas"];
    assert_eq!(schemas["library.Book"]["properties"]["pages"]["type"], "integer");
    assert_eq!(schemas["library.Book.canonical"]["properties"]["pages"]["type"], "string");
    // In one dialect there are no suffixes.
    let whole = OpenApi::new("Library").dialect(Json::Proto3).document(&files(LIBRARY).methods()).unwrap();
    assert!(whole["components"]["schemas"]["library.Book.canonical"].is_null());
}

#[test]
fn stream_is_described_as_lines_and_events_and_what_plain_http_cannot_call_is_named() {
    let document = document();
    let content = &document["paths"]["/library.Library/List"]["post"]["responses"]["200"]["content"];
    assert_eq!(
        content.as_object().unwrap().keys().collect::<Vec<_>>(),
        ["application/x-ndjson", "text/event-stream"]
    );
    let failure = &document["paths"]["/library.Library/List"]["post"]["responses"]["default"]["$ref"];
    assert_eq!(failure, "#/components/responses/StreamFailure");
    let omitted = document["info"]["description"].as_str().unwrap();
    assert!(omitted.ends_with("LOCK /v1/lock, library.Library/Upload."), "{omitted}");
}

#[test]
fn function_takes_a_list_of_arguments() {
    let arguments = Content::Type(TypeSchema::Tuple(vec![TypeSchema::Int(64), TypeSchema::Int(64)]));
    let add = Method::new("", "add", arguments, Content::Type(TypeSchema::Int(64)));
    let document = OpenApi::new("Functions").document(std::slice::from_ref(&add)).unwrap();
    let body = &document["paths"]["/add"]["post"]["requestBody"];
    assert_eq!(body["content"]["application/json"]["schema"]["minItems"], 2);
    assert_eq!(body["required"], true);
    let error = OpenApi::new("Functions").document(&[add.clone(), add]).unwrap_err();
    assert_eq!(error, "add: `post /add` is that of another method");
}

#[test]
fn every_reference_leads_to_a_definition() {
    fn check(document: &Value, value: &Value) {
        match value {
            Value::Object(members) => {
                if let Some(reference) = members.get("$ref").and_then(Value::as_str) {
                    assert!(document.pointer(&reference[1..]).is_some(), "{reference}");
                }
                members.values().for_each(|member| check(document, member));
            }
            Value::Array(items) => items.iter().for_each(|item| check(document, item)),
            _ => {}
        }
    }
    let document = document();
    check(&document, &document);
}
