use polyrpc::payload::TypeSchema;
use polyrpc::payload::schema::Pool;
use polyrpc::payload::struct_pack::Type;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};

use super::*;
use crate::{Method, ProtoFiles, json_schema};

struct Source(&'static str);

impl FileResolver for Source {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match name {
            "test.proto" => File::from_source(name, self.0),
            _ => Err(protox::Error::file_not_found(name)),
        }
    }
}

pub(crate) fn files(source: &'static str) -> ProtoFiles {
    let mut resolver = ChainFileResolver::new();
    resolver.add(GoogleFileResolver::new());
    resolver.add(Source(source));
    let mut compiler = protox::Compiler::with_file_resolver(resolver);
    compiler.include_imports(true).include_source_info(true).open_file("test.proto").unwrap();
    ProtoFiles::new(Pool::decode(&compiler.encode_file_descriptor_set()).unwrap())
}

const SHOP: &str = r#"
    syntax = "proto3";
    package shop;
    import "google/protobuf/any.proto";
    import "google/protobuf/duration.proto";
    import "google/protobuf/empty.proto";
    import "google/protobuf/field_mask.proto";
    import "google/protobuf/struct.proto";
    import "google/protobuf/timestamp.proto";
    import "google/protobuf/wrappers.proto";
    // An order.
    message Order {
      // Chosen by the customer.
      string order_id = 1;
      sint64 amount = 2;
      fixed32 count = 3;
      bytes picture = 4;
      double price = 5;
      Colour colour = 6;
      repeated Order parts = 7;
      map<string, Order> by_name = 8;
      map<int32, bool> flags = 9;
      oneof payment { string card = 10; uint64 coins = 11; }
      google.protobuf.Timestamp at = 12;
      google.protobuf.Duration lasts = 13;
      google.protobuf.Any more = 14;
      google.protobuf.Struct free = 15;
      google.protobuf.Value any = 16;
      google.protobuf.ListValue list = 17;
      google.protobuf.Int64Value big = 18;
      google.protobuf.FieldMask mask = 19;
      google.protobuf.NullValue nothing = 20;
      google.protobuf.Empty empty = 21;
    }
    enum Colour { RED = 0; GREEN = 1; }
    service Shop {
      // Buys.
      rpc Buy(Order) returns (google.protobuf.Empty);
    }
"#;

fn definition(dialect: Json, name: &str) -> Value {
    let files = files(SHOP);
    let schema = files.message_schema(files.pool.message(name).unwrap(), dialect).unwrap();
    assert_eq!(schema["$ref"], format!("#/$defs/{name}"));
    schema["$defs"].clone()
}

#[test]
fn message_is_described_as_canonical_json_writes_it() {
    let defs = definition(Json::Proto3, "shop.Order");
    let order = &defs["shop.Order"];
    assert_eq!(order["type"], "object");
    assert_eq!(order["additionalProperties"], false);
    let of = &order["properties"];
    for (field, schema) in [
        ("orderId", json!({ "type": "string", "description": "Chosen by the customer." })),
        ("amount", json!({ "type": "string", "format": "int64", "pattern": "^-?[0-9]{1,19}$" })),
        ("count", json!({ "type": "integer", "minimum": 0, "maximum": 4_294_967_295_u32 })),
        ("picture", json!({ "type": "string", "contentEncoding": "base64" })),
        (
            "price",
            json!({ "anyOf": [
                { "type": "number" },
                { "type": "string", "enum": ["NaN", "Infinity", "-Infinity"] },
            ] }),
        ),
        ("colour", json!({ "$ref": "#/$defs/shop.Colour" })),
        ("parts", json!({ "type": "array", "items": { "$ref": "#/$defs/shop.Order" } })),
        ("byName", json!({ "type": "object", "additionalProperties": { "$ref": "#/$defs/shop.Order" } })),
        (
            "flags",
            json!({
                "type": "object",
                "additionalProperties": { "type": "boolean" },
                "propertyNames": { "pattern": "^-?[0-9]{1,19}$" },
            }),
        ),
        ("at", json!({ "type": "string", "format": "date-time" })),
        ("free", json!({ "type": "object" })),
        ("any", json!({ "description": "Any JSON." })),
        ("list", json!({ "type": "array", "items": {} })),
        ("big", json!({ "type": "string", "format": "int64", "pattern": "^-?[0-9]{1,19}$" })),
        ("nothing", json!({ "type": "null" })),
        ("empty", json!({ "type": "object", "additionalProperties": false })),
    ] {
        assert_eq!(of[field], schema, "{field}");
    }
    assert_eq!(of["lasts"]["type"], "string");
    assert_eq!(of["more"]["properties"]["@type"]["type"], "string");
    assert_eq!(order["description"], "An order.\n\nAt most one of these is set: card, coins.");
    assert_eq!(order["allOf"][0]["oneOf"][2]["not"]["anyOf"][1], json!({ "required": ["coins"] }));
    let colour = json!({ "anyOf": [{ "type": "string", "enum": ["RED", "GREEN"] }, integer(true, 32)] });
    assert_eq!(defs["shop.Colour"], colour);
    assert_eq!(defs.as_object().unwrap().len(), 2, "{defs}");
}

#[test]
fn message_is_described_as_brpcs_json_writes_it() {
    let defs = definition(Json::Brpc, "shop.Order");
    let of = &defs["shop.Order"]["properties"];
    assert_eq!(of["amount"], json!({ "type": "integer", "minimum": i64::MIN, "maximum": i64::MAX }));
    assert_eq!(of["by_name"]["type"], "object");
    assert_eq!(of["flags"]["type"], "array", "brpc writes other maps as lists of entries");
    assert_eq!(of["at"], json!({ "$ref": "#/$defs/google.protobuf.Timestamp" }));
    assert_eq!(defs["google.protobuf.Timestamp"]["properties"]["nanos"], integer(true, 32));
    assert!(of["orderId"].is_null() && of["order_id"].is_object());
}

#[test]
fn required_fields_and_closed_enums_of_proto2_are_described() {
    let files = files(
        r#"
        syntax = "proto2";
        message Order { required string id = 1; optional Colour colour = 2; extensions 100 to 200; }
        enum Colour { RED = 1; }
        extend Order { optional int32 rank = 100; }
        "#,
    );
    let schema = files.message_schema(files.pool.message("Order").unwrap(), Json::Proto3).unwrap();
    let order = &schema["$defs"]["Order"];
    assert_eq!(order["required"], json!(["id"]));
    assert_eq!(order["properties"]["[rank]"], integer(true, 32));
    assert_eq!(schema["$defs"]["Colour"], json!({ "type": "string", "enum": ["RED"] }));
}

#[test]
fn document_of_a_method_has_request_and_response() {
    let files = files(SHOP);
    let methods = files.methods();
    let schema = json_schema(&methods, Json::Proto3).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(
        (schema["title"].as_str(), schema["description"].as_str()),
        (Some("shop.Shop/Buy"), Some("Buys."))
    );
    assert_eq!(schema["properties"]["request"]["$ref"], "#/$defs/shop.Order");
    assert_eq!(schema["properties"]["response"], json!({ "type": "object", "additionalProperties": false }));
    let number = || Content::Type(TypeSchema::Int(8));
    let both = [methods[0].clone(), Method::new("", "negate", number(), number())];
    let schema = json_schema(&both, Json::Proto3).unwrap();
    assert_eq!(schema["properties"]["negate"]["properties"]["request"]["minimum"], -128);
    assert_eq!(schema["properties"]["shop.Shop/Buy"]["title"], "shop.Shop/Buy");
}

#[test]
fn same_name_for_different_messages_is_an_error_and_for_equal_ones_is_not() {
    const ONE: &str = r#"syntax = "proto3"; message A { int32 a = 1; } service S { rpc M(A) returns (A); }"#;
    const OTHER: &str =
        r#"syntax = "proto3"; message A { string a = 1; } service T { rpc M(A) returns (A); }"#;
    let method = |source| files(source).methods().remove(0);
    assert!(json_schema(&[method(ONE), method(ONE)], Json::Proto3).is_ok());
    let error = json_schema(&[method(ONE), method(OTHER)], Json::Proto3).unwrap_err();
    assert_eq!(error, "A is declared in several different ways");
}

#[test]
fn chain_of_many_messages_is_described_without_deep_recursion() {
    let count = 20_000;
    let link = |n: usize| format!("message M{n} {{ M{} next = 1; }}\n", (n + 1) % count);
    let source: String = (0..count).map(link).collect();
    let source: &'static str = Box::leak(format!("syntax = \"proto3\";\n{source}").into_boxed_str());
    let files = files(source);
    let schema = files.message_schema(files.pool.message("M0").unwrap(), Json::Proto3).unwrap();
    assert_eq!(schema["$defs"].as_object().unwrap().len(), count);
}

#[test]
fn types_of_serde_and_of_cpp_are_described() {
    let mut definitions = Definitions::new(Json::Proto3, "#/$defs/");
    let fields = vec![
        ("name".to_owned(), TypeSchema::String),
        ("note".to_owned(), TypeSchema::Optional(Box::new(TypeSchema::Bool))),
    ];
    let schema = definitions.schema(&Content::Type(TypeSchema::Struct { name: "User".into(), fields }));
    assert_eq!(
        schema,
        json!({
            "type": "object",
            "title": "User",
            "properties": {
                "name": { "type": "string" },
                "note": { "anyOf": [{ "type": "boolean" }, { "type": "null" }] },
            },
            "required": ["name"],
        })
    );
    let arguments = TypeSchema::Tuple(vec![TypeSchema::Uint(8), TypeSchema::Any]);
    assert_eq!(
        definitions.schema(&Content::Type(arguments)),
        json!({ "type": "array", "prefixItems": [integer(false, 8), {}], "minItems": 2, "maxItems": 2 })
    );
    let types = Type::parse_list("int32, map<string, vector<double>>, optional<bool>").unwrap();
    let schema = definitions.schema(&Content::Arguments(types));
    assert_eq!(schema["prefixItems"][0], integer(true, 32));
    assert_eq!(schema["prefixItems"][1]["additionalProperties"]["type"], "array");
    assert_eq!(schema["prefixItems"][2]["anyOf"][1], json!({ "type": "null" }));
}

#[cfg(feature = "fbs")]
#[test]
fn table_of_a_fbs_is_described_as_flatc_writes_it() {
    const SCHEMA: &str = r"
        namespace game;
        enum Mood : byte { Calm, Angry }
        enum Marks : ubyte (bit_flags) { A, B }
        struct Place { x: float; y: float; }
        table Sword { sharp: short; }
        table Shield {}
        union Item { Sword, Shield }
        /// Lives.
        table Monster {
          name: string (required);
          mood: Mood;
          marks: Marks;
          place: Place;
          item: Item;
          friends: [Monster];
          /// Letters.
          letters: [ubyte];
        }
        rpc_service Zoo { Feed(Monster): Monster; }
    ";
    let schema = std::sync::Arc::new(polyrpc_build::fbs::read_text("game.fbs", SCHEMA).unwrap());
    let methods = Method::from_fbs(&schema);
    let document = json_schema(&methods, Json::Proto3).unwrap();
    assert_eq!(document["title"], "game.Zoo/Feed");
    let monster = &document["$defs"]["game.Monster"];
    assert_eq!((&monster["required"], &monster["description"]), (&json!(["name"]), &json!("Lives.")));
    let of = &monster["properties"];
    assert_eq!(of["mood"]["anyOf"][0]["enum"], json!(["Calm", "Angry"]));
    assert_eq!(of["marks"]["anyOf"][0]["pattern"], "^(A|B)( (A|B))*$");
    assert_eq!(of["place"], json!({ "$ref": "#/$defs/game.Place" }));
    assert_eq!(document["$defs"]["game.Place"]["required"], json!(["x", "y"]));
    assert_eq!(of["item_type"]["enum"], json!(["Sword", "Shield"]));
    assert_eq!(of["item"]["anyOf"][0], json!({ "$ref": "#/$defs/game.Sword" }));
    assert_eq!(of["friends"]["items"], json!({ "$ref": "#/$defs/game.Monster" }));
    assert_eq!(of["letters"]["description"], "Letters.");
}
