//! struct_pack: values of a type known to the reader, and self-describing values.

use std::collections::BTreeMap;

use polyrpc_payload::struct_pack::{Form, Plan, Type, U16String, VarI64};

/// A value of a known type; the input's first byte is the meta information before it. Decoded values are
/// encoded, and decode to the same.
pub fn struct_pack(input: &[u8]) {
    type Value =
        (i32, Option<Vec<String>>, BTreeMap<u8, f64>, Result<[u16; 2], (char, bool)>, U16String, VarI64);
    let plan = Plan::for_type::<Value>().expect("a type");
    let head = (plan.code() | 1).to_le_bytes();
    let Ok(value) = plan.decode::<Value>(&[&head, input].concat()) else { return };
    let written = plan.encode(&value, Form::Literal).expect("what was read can be written");
    let again: Value = plan.decode(&written).expect("what was written can be read");
    // Not the values, which may contain NaN.
    assert_eq!(plan.encode(&again, Form::Literal), Ok(written));
}

/// A value after its type literal. Decoded types and values are encoded, and decode to the same.
pub fn struct_pack_types(input: &[u8]) {
    if let Ok(ty) = Type::from_literal(input) {
        assert_eq!(ty.literal(), input, "{ty}");
        assert_eq!(ty.to_string().parse::<Type>().map(|ty| ty.literal()).as_deref(), Ok(input), "{ty}");
    }
    let Ok(Some(plan)) = Plan::from_bytes(input) else { return };
    let Ok(value) = plan.decode_json(input) else { return };
    let written = plan.encode_json(&value, Form::Literal).expect("what was read can be written");
    assert_eq!(plan.decode_json(&written), Ok(value));
}
