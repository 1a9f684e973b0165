//! Tests of the schema language and of its error messages.

use super::schema::{Default, Scalar, Type};
use super::{Schema, generate, read_text};
use crate::Config;

#[test]
fn structs_are_laid_out_as_c_does() {
    let schema = read("struct A { a: byte; b: int; c: [short:3]; d: double; } struct B { a: A; f: bool; }");
    let offsets: Vec<usize> = schema.structs[0].fields.iter().map(|field| field.offset).collect();
    assert_eq!((offsets, schema.structs[0].size, schema.structs[0].align), (vec![0, 4, 8, 16], 24, 8));
    assert_eq!((schema.structs[1].fields[1].offset, schema.structs[1].size), (24, 32));
    let forced = read("struct A (force_align: 16) { a: int; }");
    assert_eq!((forced.structs[0].size, forced.structs[0].align), (16, 16));
}

#[test]
fn union_field_takes_two_ids() {
    let schema = read("table A {} union U { A } table T { a: int; u: U; b: int; us: [U]; }");
    let ids: Vec<u16> = schema.tables[1].fields.iter().map(|field| field.id).collect();
    assert_eq!(ids, [0, 2, 3, 5]);
}

#[test]
fn names_are_resolved_in_enclosing_namespaces() {
    let schema = read(
        "namespace a; table T {} namespace a.b; table U { t: T; o: .a; }".replace(".a;", "a.T;").as_str(),
    );
    assert_eq!(
        schema.tables[1].fields.iter().map(|field| &field.ty).collect::<Vec<_>>(),
        [&Type::Table(0); 2]
    );
    assert_eq!(schema.tables[1].full_name(), "a.b.U");
}

#[test]
fn enum_values_continue_and_bit_flags_are_shifted() {
    let schema = read(
        "enum E : byte { A = -2, B, C } enum F : ubyte (bit_flags) { A, B, C = 7 } table T { f: F = \"A C A\"; e: E = B; }",
    );
    let values = |n: usize| schema.enums[n].values.iter().map(|value| value.value).collect::<Vec<_>>();
    assert_eq!((values(0), values(1)), (vec![-2, -1, 0], vec![1, 2, 128]));
    assert_eq!(schema.tables[0].fields[0].default, Default::Integer(129));
    assert_eq!(schema.tables[0].fields[1].default, Default::Integer(-1));
}

#[test]
fn default_values_are_parsed_in_every_notation() {
    let schema = read(
        "table T { a: ulong = 0xFFFFFFFFFFFFFFFF; b: float = -.5e1; c: double = nan; d: double = -inf; e: bool = true; \
         f: double = 0x1.8p1; g: int = null; h: string = '\\u00e9\\n'; i: [int] = []; j: int8 = +7; k: int = '+7'; }",
    );
    let defaults: Vec<String> =
        schema.tables[0].fields.iter().map(|field| format!("{:?}", field.default)).collect();
    let want = [
        "Integer(18446744073709551615)",
        "Float(-5.0)",
        "Float(NaN)",
        "Float(-inf)",
        "Integer(1)",
        "Float(3.0)",
        "None",
        "Text(\"é\\n\")",
        "Empty",
        "Integer(7)",
        "Integer(7)",
    ];
    assert_eq!(defaults, want);
    assert_eq!(schema.tables[0].fields[9].ty, Type::Scalar(Scalar::I8));
}

#[test]
fn doc_comments_belong_to_the_following_item() {
    let schema = read("/// One.\n/// Two.\ntable T {\n  // no\n  /// A field.\n  a: int;\n}");
    assert_eq!(schema.tables[0].docs, [" One.", " Two."]);
    assert_eq!(schema.tables[0].fields[0].docs, [" A field."]);
}

#[test]
fn errors_name_their_position() {
    for (text, want) in [
        ("table T {\n  a int;\n}", "t.fbs:2:5: expected `:`, not `int`"),
        ("table T { a: Nope; }", "t.fbs:1:14: there is no type `Nope`"),
        ("table T { a: int; a: int; }", "t.fbs:1:19: duplicate field `a`"),
        ("table T {} table T {}", "t.fbs:1:18: `T` is declared twice"),
        ("struct S { s: S; }", "t.fbs:1:8: `S` contains itself"),
        ("struct S { s: string; }", "t.fbs:1:15: a struct holds scalars, enums, structs and arrays of those"),
        ("struct S { a: int = 1; }", "t.fbs:1:21: a struct field is always present: it has no default"),
        ("table T { a: [[int]]; }", "t.fbs:1:15: a vector of vectors needs a table between them"),
        ("table T { a: [int:3]; }", "t.fbs:1:14: only structs have arrays; a table has vectors"),
        ("table T { a: byte = 128; }", "t.fbs:1:21: the number does not fit the type"),
        ("table T { a: int (required); }", "t.fbs:1:19: a required field is not a scalar and has no default"),
        (
            "table T { a: int (nope); }",
            "t.fbs:1:19: unknown attribute `nope`; declare your own: `attribute \"nope\";`",
        ),
        (
            "table T { a: int (id: 1); }",
            "t.fbs:1:7: id 0 is missing or used twice; the type of a union takes the id before it",
        ),
        (
            "table T { a: int (id: 0); b: int; }",
            "t.fbs:1:27: either every field of a table has an id, or none",
        ),
        ("enum E : byte { A = 1 } table T { e: E; }", "t.fbs:1:35: `E` has no value 0: declare a default"),
        ("enum E : byte { A, B = 0 }", "t.fbs:1:20: `A` and `B` have the same number"),
        ("enum E : byte { A = 200 }", "t.fbs:1:17: 200 does not fit the type"),
        ("enum E : bool { A }", "t.fbs:1:10: the type of an enum is an integer"),
        ("table A {} union U : int { A }", "t.fbs:1:22: the type field of a union is a ubyte"),
        ("enum E { A }", "t.fbs:1:6: expected the type of `E`: `enum E : byte`"),
        ("union U { int }", "t.fbs:1:11: a union holds tables, structs and strings"),
        ("table T {} rpc_service S { M(T): Nope; }", "t.fbs:1:34: there is no `Nope`"),
        (
            "table T {} rpc_service S { A(T): T (id: 1); B(T): T; }",
            "t.fbs:1:45: either every method of a service has an id, or none",
        ),
        (
            "table T {} rpc_service S { A(T): T (id: 1); B(T): T (id: 1); }",
            "t.fbs:1:45: `A` and `B` have the same id",
        ),
        ("table T {} rpc_service S { A(T): T (id: -1); }", "t.fbs:1:37: expected an id from 0 to 2147483647"),
        ("root_type T;", "t.fbs:1:11: there is no table `T`"),
        (
            "table T {} root_type T; file_identifier \"LONGER\";",
            "t.fbs:1:41: a file identifier has four bytes",
        ),
        (
            "include \"gone.fbs\"; message M {}",
            "t.fbs:1:21: `message` belongs in a .proto file, and this is a .fbs file",
        ),
        ("table T { a: string = \"", "t.fbs:1:23: unterminated string"),
        ("table T { a: string = \"\\u+041\"; }", "t.fbs:1:24: expected four hexadecimal digits after `\\u`"),
        ("table T { a: int = \"0x+1\"; }", "t.fbs:1:20: expected an integer"),
        ("table T { a: int = \"-+1\"; }", "t.fbs:1:20: expected an integer"),
        ("/* open", "t.fbs:1:1: unterminated comment"),
        ("table T { ä: int; }", "t.fbs:1:11: unexpected character `ä`"),
        ("table T {", "t.fbs:1:10: expected a field's name or `}`, not the end of the file"),
    ] {
        let error = read_text("t.fbs", text).expect_err(text).to_string();
        assert_eq!(error, want, "{text}");
    }
}

#[test]
fn fields_do_not_hide_the_variables_of_generated_code() {
    let schema = read("table T { table: string; builder: [string]; builder_: T; }");
    let generated = generate::generate(&Config::new(), &schema).expect("code");
    let (_, code) = generated.files.first().expect("a file");
    for line in [
        "let table = self.table.map(|value| builder__.string(value));",
        "let builder = self.builder.map(|value| builder__.strings(value));",
        "let mut table_ = builder__.table();",
        "table_.refer_if(0, table);",
        "table_.end()",
    ] {
        assert!(code.contains(line), "{line}\n\n{code}");
    }
}

#[test]
fn field_does_not_take_the_name_of_the_reader_of_a_nested_message() {
    let schema = read("table T { x: [ubyte] (nested_flatbuffer: \"T\"); x_nested: int; }");
    let generated = generate::generate(&Config::new(), &schema).expect("code");
    let (_, code) = generated.files.first().expect("a file");
    for line in ["pub fn x_nested(self) -> i32", "pub fn x_nested_(self) -> ::core::option::Option<TRef<'a>>"]
    {
        assert_eq!(code.matches(line).count(), 1, "{line}\n\n{code}");
    }
}

#[test]
fn nesting_of_vectors_is_bounded() {
    let text = format!("table T {{ a: {}", "[".repeat(200_000));
    let error = read_text("t.fbs", &text).expect_err("too deep").to_string();
    assert_eq!(error, "t.fbs:1:30: vectors are nested too deeply");
}

#[test]
fn truncated_or_damaged_schema_never_panics() {
    let text = include_str!("../../tests/fbs/rich.fbs").replace("include", "// include");
    for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
        let _ = read_text("t.fbs", &text[..end]);
        let _ = read_text("t.fbs", &text[end..]);
    }
}

fn read(text: &str) -> Schema {
    read_text("t.fbs", text).expect("a good schema")
}
