//! Mapping from Rust types to C++.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::num::NonZeroU16;
use std::time::Duration;

use super::*;

#[test]
fn rust_types_map_to_the_documented_cpp_types() {
    #[derive(Debug, Serialize, Deserialize)]
    struct Meters(f64);
    #[derive(Debug, Serialize, Deserialize)]
    struct Nothing;
    #[derive(Debug, Serialize, Deserialize)]
    #[serde(rename = "YLT_REFL(person)")]
    struct Registered {
        a: i32,
        b: i64,
    }

    check::<i8>("int8");
    check::<i16>("int16");
    check::<i32>("int");
    check::<i64>("long");
    check::<i128>("int128");
    check::<u8>("uint8_t");
    check::<u16>("uint16");
    check::<u32>("unsigned");
    check::<u64>("size_t");
    check::<u128>("uint128");
    check::<bool>("bool");
    check::<f32>("float");
    check::<f64>("double");
    check::<char>("char32_t");
    check::<Char>("char");
    check::<Char16>("char16_t");
    check::<VarI32>("var_int32_t");
    check::<VarI64>("var_int64");
    check::<VarU32>("var_uint32");
    check::<VarU64>("var_uint64");
    check::<NonZeroU16>("uint16");
    check::<String>("std::string");
    check::<Cow<'static, str>>("string");
    check::<std::ffi::CString>("string");
    check::<U16String>("u16string");
    check::<U32String>("u32string");
    check::<Vec<u8>>("vector<uint8>");
    check::<VecDeque<String>>("vector<string>");
    check::<Box<[Vec<bool>]>>("vector<vector<bool>>");
    check::<[i32; 3]>("array<int, 3>");
    check::<[[u8; 2]; 32]>("array<array<uint8, 2>, 32>");
    check::<(i32, i32)>("tuple<int, int>");
    check::<((i32,), [i32; 2])>("tuple<tuple<int>, array<int, 2>>");
    check::<HashMap<String, f32>>("unordered_map<string, float>");
    check::<BTreeMap<u8, BTreeMap<u8, u8>>>("map<uint8, map<uint8, uint8>>");
    check::<HashSet<String>>("unordered_set<string>");
    check::<BTreeSet<Vec<BTreeSet<u8>>>>("set<vector<set<uint8>>>");
    check::<Option<Option<i32>>>("optional<optional<int>>");
    check::<Option<Box<String>>>("unique_ptr<string>");
    check::<Box<Meters>>("double");
    check::<Result<i32, String>>("expected<int, string>");
    check::<Result<(), Color>>("expected<void, int>");
    check::<()>("monostate");
    check::<Nothing>("monostate");
    check::<PhantomData<String>>("monostate");
    check::<Color>("int");
    check::<Duration>("struct<uint64, uint32>");
    check::<Plain>("struct<int, uint8, double>");
    check::<Registered>("tuple<int, int64>");
    check::<Mixed>("struct<int, vector<int>, map<string, int>, optional<int>, array<short, 2>>");
    check::<Tree>("variant<tuple<^0, ^0>, struct<string, vector<^1>>, int, monostate>");
    check::<Vec<Tree>>("vector<variant<tuple<^0, ^0>, struct<string, ^1>, int, monostate>>");
    check::<Node>("struct<int, optional<^0>>");
    check::<Option<Box<Node>>>("optional<struct<int, ^0>>");
}

#[test]
fn basic_types_are_recognized() {
    for name in ["int", "double", "bool", "char", "string", "array<char, 3>"] {
        assert!(ty(name).is_basic(), "{name}");
    }
    for name in ["var_int32", "u16string", "array<int, 3>", "tuple<int>", "optional<int>", "monostate"] {
        assert!(!ty(name).is_basic(), "{name}");
    }
}

#[test]
fn nested_enums_are_inferred_completely() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Inner {
        A,
        B(u8),
        C(Color),
    }
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Outer {
        One(Inner),
        Two(Inner, Result<Inner, ()>),
        Three { inner: Option<Inner> },
    }
    let inner = "variant<monostate, uint8, int32>";
    check::<Outer>(&format!(
        "variant<{inner}, tuple<{inner}, expected<{inner}, monostate>>, struct<optional<{inner}>>>"
    ));
    for value in [
        Outer::One(Inner::A),
        Outer::Two(Inner::B(1), Ok(Inner::C(Color::Blue))),
        Outer::Two(Inner::A, Err(())),
        Outer::Three { inner: None },
        Outer::Three { inner: Some(Inner::C(Color::Green)) },
    ] {
        returns(value);
    }
}

#[test]
fn values_of_every_kind_round_trip() {
    returns(Plain { number: -1, letter: 2, double: f64::MIN_POSITIVE });
    returns(Node::chain(30));
    returns(vec![
        Tree::Nothing,
        Tree::Fork(Tree::Leaf(1).into(), Tree::Named { name: "x".into(), below: vec![Tree::Leaf(2)] }.into()),
    ]);
    returns((Color::Blue, [Color::Red, Color::Green]));
    returns((Char(200), Char16(60_000), 'ß', U16String("aß𝄞".into()), U32String("𝄞".into())));
    returns((VarI32(-1), VarI64(i64::MIN), VarU32(u32::MAX), VarU64(u64::MAX), VarI32(i32::MIN)));
    returns((i128::MIN, u128::MAX, i64::MIN, u64::MAX));
    returns(BTreeSet::from(["a".to_owned(), String::new()]));
    returns(HashMap::from([(1u8, vec![Some(3), None]), (2, vec![])]));
    returns((Ok::<(), String>(()), Err::<(), _>("no".to_owned())));
    returns((true, (), 1.5f32, Duration::new(3, 4)));
}

#[test]
fn struct_of_numbers_is_written_in_memory_layout() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Inner {
        a: i8,
        b: i16,
    }
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Outer {
        a: i8,
        inner: Inner,
        unit: (),
        long: i64,
        color: Color,
    }
    let inner = || Inner { a: 1, b: 2 };
    assert_bytes(payload(&inner()), hex("01 00 0200"));
    let outer = Outer { a: -1, inner: inner(), unit: (), long: 3, color: Color::Blue };
    assert_bytes(payload(&outer), hex("ff00 01000200 00 00 0300000000000000 02000000 00000000"));
    assert_bytes(ty("struct<int8, struct<int8, int16>, monostate, long, int>").literal(), {
        hex("fd 05 fd0507 8383ff fa 03 01 8989 ff")
    });
    returns(outer);
    // Neither in a tuple nor next to a string, but nested values still are.
    assert_bytes(payload(&(1u8, 2u32)), hex("01 02000000"));
    assert_bytes(payload(&(inner(), 1u64)), hex("01000200 0100000000000000"));
    assert_bytes(payload(&vec![inner(), inner()]), hex("02 01000200 01000200"));
    assert_bytes(payload(&[inner()]), hex("01000200"));
}

#[test]
fn numeric_map_entries_are_padded() {
    assert_bytes(payload(&BTreeMap::from([(1i32, 1.0f64)])), hex("01 01000000 00000000 000000000000f03f"));
    assert_bytes(payload(&BTreeMap::from([(1i64, 2u8), (3, 4)])), {
        hex("02 0100000000000000 0200000000000000 0300000000000000 0400000000000000")
    });
    assert_bytes(payload(&BTreeMap::from([(1i32, String::new())])), hex("01 01000000 00"));
    returns(BTreeMap::from([(1i64, 2u8), (3, 4)]));
}

#[test]
fn empty_values_take_a_byte_only_in_memory_layout() {
    assert_bytes(payload(&((), 1u8)), hex("01"));
    assert_bytes(payload(&Some(())), hex("01"));
    assert_bytes(payload(&vec![(), ()]), hex("02 0000"));
    assert_bytes(payload(&[(), ()]), hex("0000"));
    assert_bytes(payload(&BTreeSet::from([()])), hex("01"));
    returns(vec![(), ()]);
    returns(BTreeSet::from([()]));
}

#[test]
fn packed_and_numbered_structs_follow_their_type_literal() {
    let packed = hex("fd 05 01 8282 ff");
    let plan = Plan::new(Type::from_literal(&packed).expect("a literal")).expect("a type");
    assert_eq!(plan.ty().to_string(), "packed<1, 1, int8, int32>");
    let bytes = plan.encode_json(&json!([1, 2]), Form::Bare).expect("a value");
    assert_bytes(&bytes[4..], hex("01 02000000"));
    assert_eq!(plan.decode_json(&bytes), Ok(json!([1, 2])));
    for name in ["packed<2, 8, int8, int64>", "struct<int32, string>#300", "tuple<int32>"] {
        let ty = ty(name);
        assert_eq!(Type::from_literal(&ty.literal()).map(|ty| ty.literal()), Ok(ty.literal()), "{name}");
    }
    assert_bytes(ty("struct<int32, string>#300").literal(), hex("fd 01 800c fc 2f 83"));
}

#[test]
fn variable_width_integers_equal_those_of_peers() {
    let written = [
        (VarI32(0), "00"),
        (VarI32(-1), "01"),
        (VarI32(1), "02"),
        (VarI32(-65), "8101"),
        (VarI32(i32::MIN), "ffffffff0f"),
    ];
    for (value, bytes) in written {
        assert_bytes(payload(&value), hex(bytes));
    }
    assert_bytes(payload(&VarU64(300)), hex("ac02"));
    assert_bytes(payload(&VarU64(u64::MAX)), hex("ffffffffffffffffff01"));
}

#[test]
fn fast_integers_precede_their_struct() {
    let plan = plan("tuple<fast_int32, string, fast_uint64, fast_int64>");
    for (value, bytes) in [
        (json!([0, "a", 0, 0]), "00 0161"),
        (json!([-1, "a", 0, 1]), "05 ff 01 0161"),
        (json!([1, "a", 300, 0]), "0b 0100 2c01 0161"),
        (json!([-1, "a", u64::MAX, i64::MIN]), "1f ffffffff ffffffffffffffff 0000000000000080 0161"),
    ] {
        let written = plan.encode_json(&value, Form::Bare).expect("a value");
        assert_bytes(&written[4..], hex(bytes));
        assert_eq!(plan.decode_json(&written), Ok(value));
    }
}

#[test]
fn length_width_is_that_of_the_longest() {
    for (length, width, meta) in
        [(255, 1, None), (256, 2, Some(0x08)), (65_535, 2, Some(0x08)), (65_536, 4, Some(0x10))]
    {
        let value = ("x".repeat(2), "y".repeat(length), vec![Some("z".to_owned())]);
        let bytes = to_vec(&value).expect("a value");
        assert_eq!(bytes[0] & 1 == 1, meta.is_some(), "{length}");
        let start = 4 + usize::from(meta.is_some());
        assert_eq!(meta.unwrap_or(bytes[4]), bytes[4], "{length}");
        assert_eq!(bytes.len(), start + 4 * width + 2 + length + 1 + 1, "{length}");
        assert_eq!(from_slice(&bytes), Ok(value), "{length}");
    }
}

#[test]
fn plan_of_a_plain_type_is_computed_once() {
    let first = Plan::for_type::<Mixed>().expect("a type");
    let second = Plan::for_type::<Mixed>().expect("a type");
    assert!(std::sync::Arc::ptr_eq(&first, &second));
}

#[test]
fn unsupported_types_are_rejected_with_a_reason() {
    #[derive(Debug, Deserialize)]
    struct Flat {
        #[serde(flatten)]
        _rest: HashMap<String, i32>,
    }
    #[derive(Debug, Deserialize)]
    struct Empty {}
    #[derive(Debug, Deserialize)]
    struct Endless {
        _next: Box<Self>,
    }
    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "there is no value of it")]
    enum Deeper {
        A(Box<Self>),
        B(Box<Self>, i32),
    }
    refuses::<serde_json::Value>("what it is depends on the value");
    refuses::<Vec<serde_json::Value>>("what it is depends on the value");
    refuses::<Flat>("has no type in struct_pack");
    refuses::<Empty>("a struct has no members");
    refuses::<[i32; 0]>("an array has no items");
    refuses::<Endless>("contains itself directly");
    refuses::<Deeper>("contains itself");
}

#[test]
fn type_is_inferred_from_a_value_without_empty_parts() {
    assert_inferred(&(7, "x"), "tuple<int, string>");
    assert_inferred(&[1, 2], "array<int, 2>");
    assert_inferred(&&[1u8][..], "vector<uint8>");
    assert_inferred(&vec![vec![], vec!["x"]], "vector<vector<string>>");
    assert_inferred(&HashMap::from([(1, Some('x'))]), "map<int, optional<char32>>");
    assert_inferred(&BTreeMap::from([(1, vec![]), (2, vec![true])]), "map<int, vector<bool>>");
    assert_inferred(&HashSet::from([Char(1)]), "set<char>");
    assert_inferred(&Plain { number: 1, letter: 2, double: 3.0 }, "struct<int, uint8, double>");
    assert_inferred(&Color::Green, "int");
    assert_inferred(&(), "monostate");
    for error in [
        Type::for_value(&Vec::<i32>::new()),
        Type::for_value(&(1, None::<i32>)),
        Type::for_value(&Tree::Leaf(1)),
        Type::for_value(&Ok::<i32, i32>(1)),
        Type::for_value(&HashMap::<i32, i32>::new()),
        Type::for_value(&Node::chain(3)),
    ] {
        let error = error.expect_err("a type that the value does not tell").to_string();
        assert!(error.contains("cannot be inferred"), "{error}");
    }
}

#[test]
fn types_serialized_unlike_deserialized_are_rejected() {
    #[derive(Debug, Serialize, Deserialize)]
    struct Shy {
        a: i32,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        b: Option<i32>,
    }
    let error = to_vec(&Shy { a: 1, b: None }).expect_err("a member is missing");
    assert_eq!(error.to_string(), "a struct has too few members: none may be left out");
    let error = plan("tuple<int, int>").encode(&(1, "x"), Form::Bare).expect_err("no int");
    assert_eq!(error.to_string(), "a text is no int32");
    let error = plan("uint8").encode(&300, Form::Bare).expect_err("too large");
    assert_eq!(error.to_string(), "300 is no uint8");
    assert!(plan("array<int, 2>").encode(&[1], Form::Bare).is_err());
    assert!(plan("array<int, 2>").encode(&[1, 2, 3], Form::Bare).is_err());
    assert!(plan("tuple<int>").encode(&(1, 2), Form::Bare).is_err());
    assert!(plan("variant<int>").encode(&Ok::<i32, i32>(1), Form::Bare).is_ok());
    assert!(plan("variant<int>").encode(&Err::<i32, i32>(1), Form::Bare).is_err());
}

#[test]
fn every_value_has_a_json_form() {
    for (name, value) in [
        ("tuple<int, optional<string>, optional<int>>", json!([1, null, 2])),
        ("map<string, vector<int>>", json!({ "a": [1], "b": [] })),
        ("map<int, bool>", json!([[1, true], [2, false]])),
        ("variant<int, string>", json!({ "index": 1, "value": "x" })),
        ("expected<void, string>", json!({ "index": 0, "value": null })),
        ("tuple<float, double>", json!([0.1, "NaN"])),
        ("tuple<int128, uint128>", json!(["-170141183460469231731687303715884105728", 5])),
        ("tuple<char, char16, char32>", json!([120, 60000, "5"])),
        ("tuple<string, u16string>", json!([[255, 0], "ß"])),
        ("struct<uint64, int64>", json!([u64::MAX, i64::MIN])),
        ("set<monostate>", json!([null, null])),
    ] {
        let plan = plan(name);
        let bytes = plan.encode_json(&value, Form::Literal).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(plan.decode_json(&bytes), Ok(value), "{name}");
    }
    let error = plan("tuple<int>").encode_json(&json!(["x"]), Form::Bare).expect_err("no int");
    assert_eq!(error.to_string(), "\"x\" is not what is written as int32");
    assert_eq!(
        plan("map<int, string>").encode_json(&json!({ "1": "x" }), Form::Bare),
        plan("map<int, string>").encode_json(&json!([[1, "x"]]), Form::Bare),
    );
    assert_eq!(
        plan("char").encode_json(&json!("x"), Form::Bare),
        plan("char").encode_json(&json!(120), Form::Bare),
    );
}

#[test]
fn type_names_round_trip() {
    for name in [
        "tuple<int32, vector<string>>",
        "struct<map<uint8, set<float>>, array<array<char, 2>, 300>>",
        "variant<monostate, expected<double, ^1>>",
        "packed<2, 4, int8, int32>#7",
    ] {
        assert_eq!(ty(name).to_string(), name);
    }
    assert_eq!(ty(" std::map < int , std::vector<long>> ").to_string(), "map<int32, vector<int64>>");
    assert_eq!(
        Type::parse_list("int, std::pair<int8_t,short>").map(Type::tuple),
        Ok(ty("tuple<int32, struct<int8, int16>>"))
    );
    for wrong in [
        "",
        "int,",
        "vector",
        "vector<",
        "vector<>",
        "map<int>",
        "array<int>",
        "array<int, x>",
        "no",
        "int int",
    ] {
        assert!(Type::parse_list(wrong).is_err(), "{wrong}");
    }
}

fn check<T: serde::de::DeserializeOwned>(name: &str) {
    let ours = Type::for_type::<T>().unwrap_or_else(|error| panic!("{name}: {error}"));
    // A literal does not state whether a struct is a memory image if it cannot be one.
    assert_eq!(ours.to_string(), ty(name).to_string());
    Plan::new(ours).unwrap_or_else(|error| panic!("{name}: {error}"));
}

fn assert_inferred<T: Serialize + ?Sized>(value: &T, name: &str) {
    assert_eq!(Type::for_value(value), Ok(ty(name)));
}

fn refuses<T: serde::de::DeserializeOwned>(reason: &str) {
    let error = Type::for_type::<T>().and_then(Plan::new).expect_err(reason).to_string();
    assert!(error.contains(reason), "{error}");
}

fn returns<T>(value: T)
where
    T: Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug + 'static,
{
    let bytes = to_vec(&value).unwrap_or_else(|error| panic!("{value:?}: {error}"));
    assert_eq!(from_slice::<T>(&bytes).as_ref(), Ok(&value));
    let plan = Plan::for_type::<T>().expect("a type");
    let named = plan.encode(&value, Form::Literal).expect("the same");
    assert_eq!(plan.decode::<T>(&named).as_ref(), Ok(&value));
    // A reader that knows only the literal decodes and encodes the same.
    let learnt = Plan::from_bytes(&named).expect("a head").expect("a literal");
    let json = learnt.decode_json(&named).expect("the same");
    assert_bytes(learnt.encode_json(&json, Form::Bare).expect("the same"), bytes);
}
