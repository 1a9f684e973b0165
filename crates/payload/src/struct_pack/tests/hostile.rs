//! Malformed input that no peer writes.

use polyrpc_core::testing::damage;

use super::*;

#[test]
fn damaged_bytes_never_panic() {
    let value =
        (Mixed::new(vec![1, 2, 3]), vec![Tree::Leaf(1), Tree::Nothing], Node::chain(2), "text".to_owned());
    type Value = (Mixed, Vec<Tree>, Node, String);
    let plan = Plan::for_type::<Value>().expect("a type");
    for form in [Form::Bare, Form::Literal] {
        let bytes = plan.encode(&value, form).expect("a value");
        damage(&bytes, |damaged| {
            let _ = from_slice::<Value>(damaged);
            let _ = plan.decode_json(damaged);
            if let Ok(Some(learnt)) = Plan::from_bytes(damaged) {
                let _ = learnt.decode_json(damaged);
            }
        });
    }
}

#[test]
fn damaged_type_literals_never_panic() {
    let ty = ty(
        "struct<map<string, array<struct<int8, int64>, 300>>, variant<^1, tuple<^0>>, packed<1, 4, int>>#5",
    );
    damage(&ty.literal(), |damaged| {
        if let Ok(ty) = Type::from_literal(damaged) {
            assert_bytes(ty.literal(), damaged);
            assert_eq!(ty.to_string().parse::<Type>().map(|ty| ty.literal()), Ok(ty.literal()), "{ty}");
            let _ = Plan::new(ty);
        }
    });
}

#[test]
fn type_mismatch_error_names_both_types() {
    let bytes = to_vec(&(5, "hi".to_owned())).expect("a value");
    assert_eq!(
        from_slice::<(i32, i32)>(&bytes).expect_err("another type").to_string(),
        "a value of a type with code 85a8fde6 is no tuple<int32, int32> (fd0101ff) with code 4045908c",
    );
    let plan = Plan::for_type::<(i32, String)>().expect("a type");
    let bytes = plan.encode(&(5, "hi".to_owned()), Form::Literal).expect("a value");
    assert_eq!(
        from_slice::<(i32, i32)>(&bytes).expect_err("another type").to_string(),
        "a value of type tuple<int32, string> (fd01800cff) is no tuple<int32, int32> (fd0101ff) with code 4045908c",
    );
    let mut forged = bytes;
    forged[6] = 0x02;
    assert!(
        matches!(from_slice::<(i32, String)>(&forged), Err(Error::Mismatch(_))),
        "the code alone is not enough"
    );
}

#[test]
fn lengths_beyond_the_input_are_rejected_before_allocation() {
    for (name, payload) in [
        ("string", "05 61626364"),
        ("vector<int>", "02 0100000002"),
        ("vector<struct<int64, int8>>", "02 0000000000000000 0000000000000000"),
        ("map<int, double>", "01 0000000000000000"),
        ("array<array<int, 1000000000000>, 1000000000000>", "00"),
        ("u32string", "02 00000000"),
        ("optional<int>", "01"),
        ("tuple<bool, int>", "01 0000"),
        ("struct<int64, int8>", "0000000000000000 00"),
    ] {
        assert_eq!(read(name, payload), Err(Error::Truncated), "{name}");
    }
    for meta in ["08", "10", "18"] {
        let plan = plan("vector<int>");
        let head = (plan.code() | 1).to_le_bytes();
        for length in ["ffffffffffffffff", "ffffffffffffff7f"] {
            let bytes = [&head[..], &hex(meta), &hex(length)].concat();
            assert_eq!(plan.decode_json(&bytes), Err(Error::Truncated), "{meta} {length}");
        }
    }
}

#[test]
fn number_of_zero_sized_items_is_limited() {
    let plan = plan("vector<tuple<monostate>>");
    let bytes =
        |meta: &str, count: &str| [&(plan.code() | 1).to_le_bytes()[..], &hex(meta), &hex(count)].concat();
    assert!(plan.decode_json(&bytes("08", "1000")).is_ok());
    assert!(plan.decode_json(&bytes("10", "00000100")).is_ok());
    assert!(matches!(plan.decode_json(&bytes("10", "01000100")), Err(Error::Invalid(_))));
    assert!(matches!(plan.decode_json(&bytes("18", "ffffffffffffff7f")), Err(Error::Invalid(_))));
    assert!(matches!(read("array<tuple<monostate>, 1000000000>", ""), Err(Error::Invalid(_))));
}

#[test]
fn bytes_after_a_value_are_skipped() {
    let bytes = [to_vec(&(7, 8)).expect("a value"), b"more".to_vec()].concat();
    assert_eq!(from_slice(&bytes), Ok((7, 8)));
    // The total length, from a peer whose type has additional members; the bytes after it do not belong to the value.
    let plan = Plan::for_type::<(i32, i32)>().expect("a type");
    for (meta, total) in [("01", "1100"), ("02", "13000000"), ("03", "1700000000000000")] {
        let head = (plan.code() | 1).to_le_bytes();
        let body = hex("07000000 08000000 0142 ffff");
        let bytes = [&head[..], &hex(meta), &hex(total), &body].concat();
        assert_eq!(from_slice(&bytes), Ok((7, 8)), "{meta}");
        assert_eq!(from_slice::<(i32, i32)>(&bytes[..bytes.len() - 3]), Err(Error::Truncated), "{meta}");
    }
}

#[test]
fn encodings_that_no_peer_writes_are_rejected() {
    assert!(matches!(read("bool", "02"), Err(Error::Invalid(_))));
    assert!(matches!(read("optional<int>", "02 00000000"), Err(Error::Invalid(_))));
    assert!(matches!(read("variant<int, int>", "02 00000000"), Err(Error::Invalid(_))));
    assert!(matches!(read("char32", "00d80000"), Err(Error::Invalid(_))));
    assert!(matches!(read("u16string", "01 00d8"), Err(Error::Invalid(_))));
    assert!(matches!(read("var_uint64", "ffffffffffffffffffff01"), Err(Error::Invalid(_))));
    assert!(matches!(read("tuple<fast_int32>", "07 0000000000000000"), Err(Error::Invalid(_))));
    let plan = Plan::for_type::<Color>().expect("a type");
    for number in [3, -1] {
        let bytes = [plan.code().to_le_bytes(), i32::to_le_bytes(number)].concat();
        assert!(plan.decode::<Color>(&bytes).is_err());
    }
    let text = Plan::for_type::<String>().expect("a type");
    let bytes = [&text.code().to_le_bytes()[..], &hex("01 ff")].concat();
    assert!(text.decode::<String>(&bytes).is_err(), "no UTF-8");
    assert_eq!(text.decode::<std::ffi::CString>(&bytes), Ok(c"\xff".to_owned()));
    for short in ["", "00", "000000", "01000000"] {
        assert_eq!(from_slice::<i32>(&hex(short)), Err(Error::Truncated), "{short}");
    }
    assert_eq!(from_slice::<()>(b""), Ok(()));
}

#[test]
fn nesting_depth_is_limited() {
    let deep = Plan::for_type::<Node>().expect("a type");
    let chain = |length| deep.encode(&Node::chain(length), Form::Bare).expect("a value");
    assert!(deep.decode::<Node>(&chain(MAX_DEPTH / 2 - 1)).is_ok());
    assert_eq!(deep.decode::<Node>(&chain(MAX_DEPTH / 2)), Err(Error::TooDeep));
    assert_eq!(deep.decode_json(&chain(MAX_DEPTH)), Err(Error::TooDeep));
    let endless = |byte: u8| Type::from_literal(&vec![byte; 10_000]);
    assert_eq!(endless(0x84), Err(Error::TooDeep));
    assert_eq!(endless(0xfd), Err(Error::TooDeep));
    assert!("vector<".repeat(10_000).parse::<Type>().is_err());
}

#[test]
fn types_that_no_peer_has_are_rejected() {
    for name in [
        "^0",
        "vector<^0>",
        "tuple<tuple<^0>>",
        "tuple<int, array<^0, 3>>",
        "optional<^18446744073709551615>",
        "array<int, 0>",
        "vector<fast_int32>",
    ] {
        assert!(Plan::new(ty(name)).is_err(), "{name}");
    }
    for literal in [
        "",
        "00",
        "0f",
        "10",
        "13",
        "88",
        "89",
        "fdff00",
        "0101",
        "80",
        "8001",
        "81",
        "8101",
        "810100",
        "86",
        "86ff01",
        "fd",
        "fd01",
        "fd01fc",
        "fd800c8282ff",
        "fd8282ff",
        "fb80",
        "8101 0101010101010101010101ff",
    ] {
        let plan = Type::from_literal(&hex(literal)).and_then(Plan::new);
        assert!(plan.is_err(), "{literal}: {plan:?}");
    }
    assert!(Plan::new(Type::Variant(Vec::new())).is_err());
    assert!(Plan::new(Type::Variant(vec![Type::Unit; 256])).is_err());
}

#[test]
fn array_sizes_are_written_in_nonzero_digits() {
    for (count, digits) in
        [(1, "82"), (126, "ff"), (127, "0182"), (128, "0282"), (16_128, "7fff"), (16_129, "010182")]
    {
        let ty = ty(&format!("array<int, {count}>"));
        assert_bytes(ty.literal(), [&hex("8101")[..], &hex(digits)].concat());
        assert_eq!(Type::from_literal(&ty.literal()), Ok(ty));
    }
}

fn read(name: &str, payload: &str) -> Result<serde_json::Value, Error> {
    let plan = plan(name);
    plan.decode_json(&[&plan.code().to_le_bytes()[..], &hex(payload)].concat())
}
