//! Values captured from rest_rpc.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::*;

#[test]
fn values_are_encoded_as_peers_do_and_round_trip() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Trivial(i32, Char, f64);
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Alternative {
        Number(i32),
        Text(String),
    }
    let trivial = || Trivial(1, Char(b'x'), 1.5);
    let big = Mixed { optional: None, array: [3, 4], ..Mixed::new(vec![1; 300]) };

    agrees("struct_pack_trivial_struct{int,char,double}", &trivial());
    agrees("struct_pack_tuple<T>", &(trivial(),));
    agrees("struct_pack_U", &Mixed::new(vec![1, 2, 3]));
    agrees("struct_pack_U_big_vector", &big);
    agrees("struct_pack_vector<int>", &vec![1, 2]);
    agrees("struct_pack_tuple<int,string>", &(5, "hi".to_owned()));
    agrees("struct_pack_variant", &(Alternative::Text("z".to_owned()),));
}

#[test]
fn every_captured_value_round_trips_by_its_type_literal() {
    let values = vectors("struct_pack_values");
    assert_eq!(values.len(), 7);
    for value in values {
        let fields = &value["fields"];
        let literal = hex(text(&fields["type_literal_hex"]));
        let plan = Plan::new(Type::from_literal(&literal).expect("a literal")).expect("a type");
        assert_bytes(plan.literal(), &literal);
        assert_eq!(format!("{:08x}", plan.code()), text(&fields["code_hex"]));
        let bytes = hex(text(&value["hex"]));
        if bytes.len() == fields["len"] {
            let json = plan.decode_json(&bytes).expect("a value");
            assert_bytes(plan.encode_json(&json, Form::Bare).expect("the same"), &bytes);
            let named = plan.encode_json(&json, Form::Literal).expect("the same");
            let learnt = Plan::from_bytes(&named).expect("a head").expect("a literal");
            assert_eq!(learnt.decode_json(&named), Ok(json));
        }
    }
}

#[test]
fn captured_arguments_and_results_round_trip() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Person {
        id: i32,
        name: String,
        age: i32,
    }
    for name in ["w6_add", "w6_member_add", "w6be_add", "w6r_add"] {
        assert_eq!(round_trip::<(i32, i32)>(&body(name, 0)), (7, 8), "{name}");
        assert_eq!(arguments_from_slice::<(i32, i32)>(&body(name, 0)), Ok((7, 8)), "{name}");
    }
    for name in ["w6_struct", "w6r_struct"] {
        let asked = Person { id: 1, name: "tom".to_owned(), age: 20 };
        assert_eq!(arguments_from_slice(&body(name, 0)), Ok(asked), "{name}");
        let (asked,) = round_trip::<(Person,)>(&body(name, 0));
        let answer = body(name, 1);
        let (status, answer) = answer.split_first().expect("a status");
        assert_eq!((*status, round_trip::<Person>(answer)), (0, Person { age: 21, ..asked }), "{name}");
    }
    let asked = Person { id: 1, name: "tom".to_owned(), age: 20 };
    assert_bytes(arguments_to_vec(&asked).expect("arguments"), body("w6r_struct", 0));
    assert_bytes(arguments_to_vec(&(7, 8)).expect("arguments"), body("w6r_add", 0));
    assert_bytes(arguments_of_value(&asked).expect("arguments"), body("w6r_struct", 0));
    assert_bytes(arguments_of_value(&(7, 8)).expect("arguments"), body("w6r_add", 0));
}

/// Decodes a value, and encodes it in the form in which it arrived.
fn round_trip<T: Serialize + serde::de::DeserializeOwned + 'static>(bytes: &[u8]) -> T {
    let plan = Plan::for_type::<T>().expect("a type");
    let value = plan.decode(bytes).expect("a value");
    let named = head::read(bytes).expect("a head").literal.is_some();
    let form = if named { Form::Literal } else { Form::Bare };
    assert_bytes(plan.encode(&value, form).expect("the same"), bytes);
    value
}

/// Asserts that a value encodes to the captured bytes, if there are any, and decodes again.
fn agrees<T>(name: &str, value: &T)
where
    T: Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug + 'static,
{
    let captured = vectors("struct_pack_values").into_iter().find(|captured| captured["name"] == name);
    let captured = captured.expect(name);
    let fields = &captured["fields"];
    let plan = Plan::for_type::<T>().expect(name);
    assert_bytes(plan.literal(), hex(text(&fields["type_literal_hex"])));
    assert_eq!(format!("{:08x}", plan.code()), text(&fields["code_hex"]), "{name}");
    let bytes = to_vec(value).expect(name);
    let shown = hex(text(&captured["hex"]));
    assert_eq!(Value::from(bytes.len()), fields["len"], "{name}");
    assert_bytes(&bytes[..shown.len()], shown);
    assert_eq!(from_slice::<T>(&bytes).as_ref(), Ok(value), "{name}");
    let named = plan.encode(value, Form::Literal).expect(name);
    assert_eq!(from_slice::<T>(&named).as_ref(), Ok(value), "{name}");
}

fn body(name: &str, at: usize) -> Vec<u8> {
    let conversation = vectors(name);
    hex(text(&conversation[at]["fields"]["body_hex"])).to_vec()
}

fn vectors(name: &str) -> Vec<Value> {
    let file = format!("{name}.json");
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "vectors", "rest_rpc", &file].iter().collect();
    let text = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).expect("a list")
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}
