use protox::Compiler;
use protox::file::{ChainFileResolver, File as SourceFile, FileResolver, GoogleFileResolver};
use protox::prost_reflect::prost_types::FileDescriptorSet;

use super::*;

/// Sources by their names.
struct Sources(Vec<(String, String)>);

impl FileResolver for Sources {
    fn open_file(&self, name: &str) -> Result<SourceFile, protox::Error> {
        match self.0.iter().find(|(known, _)| known == name) {
            Some((_, text)) => SourceFile::from_source(name, text),
            None => Err(protox::Error::file_not_found(name)),
        }
    }
}

fn compile(sources: &[(&str, &str)], source_info: bool) -> Vec<u8> {
    let owned = sources.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    let mut resolver = ChainFileResolver::new();
    resolver.add(GoogleFileResolver::new());
    resolver.add(Sources(owned));
    let mut compiler = Compiler::with_file_resolver(resolver);
    compiler.include_imports(true).include_source_info(source_info);
    for (name, _) in sources {
        compiler.open_file(name).unwrap();
    }
    compiler.encode_file_descriptor_set()
}

const ANNOTATIONS: &str = r#"
    syntax = "proto3";
    package google.api;
    import "google/protobuf/descriptor.proto";
    message HttpRule {
      oneof pattern {
        string get = 2; string put = 3; string post = 4; string delete = 5; string patch = 6;
        CustomHttpPattern custom = 8;
      }
      string body = 7;
      string response_body = 12;
      repeated HttpRule additional_bindings = 11;
    }
    message CustomHttpPattern { string kind = 1; string path = 2; }
    extend google.protobuf.MethodOptions { HttpRule http = 72295728; }
"#;

const SHOP: &str = r#"
    syntax = "proto2";
    package shop.v1;
    import public "parts/colour.proto";
    import "google/api/annotations.proto";
    import "google/protobuf/timestamp.proto";
    option java_package = "com.shop";
    option java_multiple_files = true;
    option java_string_check_utf8 = true;
    option optimize_for = CODE_SIZE;
    option php_metadata_namespace = "Shop\\Metadata";
    // What a customer wants.
    //
    // In \full.
    message Order {
      option deprecated = true;
      required string id = 1;
      optional int32 count = 2 [default = -7];
      optional string note = 3 [default = "a \"b\"\n\\ü", deprecated = true];
      optional bytes raw = 13 [default = "\001\"\377"];
      optional double ratio = 14 [default = inf];
      optional parts.Colour colour = 15 [default = GREEN];
      repeated group Line = 4 { optional Item item = 1; }
      map<string, Item> by_name = 5;
      repeated int64 sizes = 16 [packed = true, json_name = "howBig"];
      // How it is paid.
      oneof payment { string card = 6; bytes coin = 7; }
      optional google.protobuf.Timestamp at = 17;
      optional int64 big = 18 [jstype = JS_STRING];
      optional bytes photo = 19 [ctype = CORD];
      optional Item first = 20 [lazy = true, deprecated = false];
      message Item {
        enum Kind {
          // The usual one.
          A = 0;
        }
        optional Kind kind = 1;
        extend Order { optional Item best = 101; repeated group Other = 102 { optional Item it = 1; } }
      }
      extensions 100 to 199, 1000 to max;
      reserved 8, 10 to 12;
      reserved "old", "older";
    }
    extend Order {
      // Of its label.
      optional parts.Colour tint = 100;
      optional group Extra = 103 { optional string text = 1; }
    }
    // Sells.
    service Shop {
      // Buys.
      rpc Buy(Order) returns (stream Order.Item);
      rpc Look(Order) returns (parts.Point) {
        option idempotency_level = NO_SIDE_EFFECTS;
        option (google.api.http) = {
          get: "/v1/{id=orders/*}" response_body: "x"
          additional_bindings { custom { kind: "LOCK" path: "/v1/lock" } body: "*" }
        };
      }
    }
"#;

const COLOUR: &str = r#"
    syntax = "proto3";
    package parts;
    message Point { int32 x = 1; optional int32 y = 2; repeated uint64 ids = 4 [packed = false]; string snake_case_name = 5; }
    enum Colour { option allow_alias = true; RED = 0; ROUGE = 0 [deprecated = true]; GREEN = 1; reserved 7 to max; }
"#;

/// Files as they were printed, by their names.
fn split_files(text: &str) -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        match line.strip_prefix("// ").filter(|name| name.ends_with(".proto")) {
            Some(name) => files.push((name.to_owned(), String::new())),
            None => {
                let (_, text) = files.last_mut().expect("a name before the text");
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    files
}

#[test]
fn printed_files_compile_to_the_same_descriptors() {
    let sources =
        [("parts/colour.proto", COLOUR), ("google/api/annotations.proto", ANNOTATIONS), ("shop.proto", SHOP)];
    let set = compile(&sources, false);
    let text = format_files(&SchemaSource::new(&set, "test").unwrap(), None).unwrap();
    let files = split_files(&text);
    let names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
    assert!(
        names.iter().position(|name| *name == "shop.proto")
            > names.iter().position(|name| *name == "parts/colour.proto")
    );
    let again: Vec<_> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let again = compile(&again, false);
    let decoded = |set: &[u8]| {
        let mut files = FileDescriptorSet::decode(set).unwrap().file;
        files.sort_by(|one, other| one.name().cmp(other.name()));
        files
    };
    for (one, other) in decoded(&set).iter().zip(decoded(&again)) {
        assert_eq!(*one, other, "{}\n{text}", one.name());
    }
    // The options of extensions are not part of what is decoded.
    let rule = |set: &[u8]| {
        let pool = SchemaSource::new(set, "test").unwrap().pool().clone();
        let service = pool.service("shop.v1.Shop").unwrap();
        service.methods().nth(1).unwrap().http_rule().unwrap().to_vec()
    };
    assert_eq!(rule(&set), rule(&again));
    assert!(
        text.contains("// Options that extensions declare are left out, except google.api.http.\n"),
        "{text}"
    );
}

#[test]
fn comments_are_kept() {
    let sources =
        [("parts/colour.proto", COLOUR), ("google/api/annotations.proto", ANNOTATIONS), ("shop.proto", SHOP)];
    let set = compile(&sources, true);
    let text = format_files(&SchemaSource::new(&set, "test").unwrap(), Some("shop.v1.Shop/Buy")).unwrap();
    for comment in [
        "// What a customer wants.\n//\n// In \\full.\nmessage Order {",
        "// Sells.\nservice Shop {\n  // Buys.\n  rpc Buy(.shop.v1.Order) returns (stream .shop.v1.Order.Item);",
        "  // How it is paid.\n  oneof payment {",
        "    enum Kind {\n      // The usual one.\n      A = 0;\n    }",
        "extend .shop.v1.Order {\n  // Of its label.\n  optional .parts.Colour tint = 100;\n}",
    ] {
        assert!(text.contains(comment), "{comment}\n{text}");
    }
}

#[test]
fn only_the_file_of_a_name_and_its_imports_are_printed() {
    let set = compile(
        &[
            ("parts/colour.proto", COLOUR),
            ("google/api/annotations.proto", ANNOTATIONS),
            ("shop.proto", SHOP),
        ],
        false,
    );
    let source = SchemaSource::new(&set, "test").unwrap();
    let names = |name| {
        let text = format_files(&source, Some(name)).unwrap();
        split_files(&text).into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert_eq!(names("parts.Colour"), ["parts/colour.proto"]);
    assert_eq!(names("shop.v1.Shop").len(), 3);
    let failure = format_files(&source, Some("shop.v1.Shup")).unwrap_err().to_string();
    assert_eq!(failure, "error: test describes no `shop.v1.Shup`\nhint: did you mean `shop.v1.Shop`?");
}

#[test]
fn http_rule_of_many_nested_bindings_is_left_out() {
    let nested = |depth: usize| {
        (0..depth).fold(b"\x12\x02/a".to_vec(), |inner, _| {
            let mut outer = vec![11 << 3 | 2];
            polyrpc_core::protobuf::put_varint(&mut outer, inner.len() as u64);
            outer.extend_from_slice(&inner);
            outer
        })
    };
    let text = rule_text(&nested(2), MAX_BINDING_DEPTH).unwrap();
    assert_eq!(text, "additional_bindings { additional_bindings { get: \"/a\" } }");
    assert_eq!(rule_text(&nested(5000), MAX_BINDING_DEPTH), None);
}
