//! Values for a C++ peer whose encoding does not contain types (rest_rpc since v0.21): a single number or string is
//! encoded as text, anything else as struct_pack, whose types are given or inferred.

use polyrpc::Format;
use polyrpc::codec::{self, Body};
use polyrpc::payload::struct_pack::{Form, Plan, Scalar, Type};
use serde::ser::{Error as _, Serialize, SerializeTuple, Serializer};
use serde_json::Value;

use crate::json::{self, no_json, unreadable};
use crate::struct_pack::{self, Signature};
use crate::{Error, readable};

/// Writes the arguments, given as JSON: a list of them, or a single one.
///
/// # Errors
///
/// If it is not JSON, or does not match the types.
pub fn request(signature: Option<&Signature>, argument: &[u8]) -> Result<Body, Error> {
    let value: Value = serde_json::from_slice(argument).map_err(no_json)?;
    let arguments = match value {
        Value::Array(arguments) => arguments,
        Value::Null => Vec::new(),
        sole => vec![sole],
    };
    match signature {
        Some(signature) if !is_text(&signature.arguments) => {
            let bytes = signature.write(&Value::Array(arguments)).map_err(|error| unsendable(&error))?;
            Ok(Body { positional: true, ..Body::new(Format::RestRpc, bytes) })
        }
        Some(signature) => declared_text(&signature.arguments, &arguments),
        None => inferred(&arguments),
    }
}

/// Encodes a sole argument as text. The text does not contain its type, so that a peer would not notice another one.
fn declared_text(types: &[Type], arguments: &[Value]) -> Result<Body, Error> {
    let plan = Plan::new(Type::tuple(types.to_vec())).map_err(|error| unsendable(&error))?;
    plan.encode_json(&Value::Array(arguments.to_vec()), Form::Bare).map_err(|error| unsendable(&error))?;
    match arguments {
        // A string that is not UTF-8.
        [Value::Array(bytes)] => {
            let byte = |value: &Value| value.as_u64().and_then(|byte| u8::try_from(byte).ok());
            let bytes: Vec<u8> = bytes.iter().filter_map(byte).collect();
            Ok(Body { positional: true, ..Body::new(Format::RestRpc, bytes) })
        }
        _ => inferred(arguments),
    }
}

fn inferred(arguments: &[Value]) -> Result<Body, Error> {
    codec::arguments(&InferredArguments(arguments), Format::RestRpc)
        .map_err(|status| unsendable(&status.message()))
}

/// Whether the arguments are a single one that is encoded as text, of any width.
pub(crate) fn is_text(arguments: &[Type]) -> bool {
    matches!(arguments, [Type::Scalar(_) | Type::String(_)])
}

/// Reads a result as JSON.
///
/// # Errors
///
/// If the bytes are not of the declared type.
pub fn reply(signature: Option<&Signature>, bytes: &[u8]) -> Result<String, Error> {
    let declared = signature.and_then(|signature| signature.answer.as_ref());
    match declared {
        Some(Type::String(_)) => return Ok(format_text(bytes)),
        Some(Type::Scalar(Scalar::Bool)) => {
            let truth = std::str::from_utf8(bytes).ok().and_then(boolean);
            return truth.map(|truth| truth.to_string()).ok_or_else(|| unreadable(&NO_BOOLEAN));
        }
        Some(Type::Scalar(_)) => return Ok(text(bytes)),
        _ => {}
    }
    match struct_pack::read(signature, bytes) {
        Ok(Some(value)) => Ok(json::pretty(&value.to_string())),
        Err(error) if declared.is_some() => Err(unreadable(&error)),
        // Most strings are not struct_pack, even if they look like it.
        Ok(None) | Err(_) => Ok(text(bytes)),
    }
}

/// Parses a boolean: `std::to_string` writes it as a number.
pub(crate) fn boolean(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// Reason why a text is not a boolean.
pub(crate) const NO_BOOLEAN: &str = "a boolean is 0 or 1";

/// A text as a JSON string, even if it looks like another value; a list of its bytes if it is not UTF-8.
fn format_text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::from(text).to_string(),
        Err(_) => Value::from(bytes).to_string(),
    }
}

/// A number unchanged, another string as JSON, other bytes in a readable form.
fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok("") => "null".to_owned(),
        Ok(text) if matches!(serde_json::from_str(text), Ok(Value::Number(_))) => text.to_owned(),
        Ok(text) if !text.contains('\0') => Value::from(text).to_string(),
        _ => readable(bytes),
    }
}

/// Infers the argument types from the JSON, as C++ would take them: `int` if a number fits, `double`, `std::string`,
/// `bool`; a list is a `std::vector` of its items' type.
struct InferredArguments<'a>(&'a [Value]);

impl Serialize for InferredArguments<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_empty() {
            return serializer.serialize_unit();
        }
        let mut tuple = serializer.serialize_tuple(self.0.len())?;
        self.0.iter().try_for_each(|value| tuple.serialize_element(&InferredValue(value)))?;
        tuple.end()
    }
}

struct InferredValue<'a>(&'a Value);

impl Serialize for InferredValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Null => serializer.serialize_none(),
            Value::Bool(truth) => serializer.serialize_bool(*truth),
            Value::String(text) => serializer.serialize_str(text),
            Value::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
                (Some(number), ..) => match i32::try_from(number) {
                    Ok(number) => serializer.serialize_i32(number),
                    Err(_) => serializer.serialize_i64(number),
                },
                (None, Some(number), _) => serializer.serialize_u64(number),
                (None, None, number) => serializer.serialize_f64(number.unwrap_or(f64::NAN)),
            },
            Value::Array(items) => serializer.collect_seq(items.iter().map(InferredValue)),
            Value::Object(_) => Err(S::Error::custom("JSON does not define the order of a struct's members")),
        }
    }
}

fn unsendable(error: &dyn std::fmt::Display) -> Error {
    Error::new(format!("the argument cannot be sent: {error}"))
        .with_hint("name the types of the function's arguments with --types, for example int32,string")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(types: Option<&str>, argument: &str) -> Vec<u8> {
        let signature = types.map(|types| types.parse().unwrap());
        request(signature.as_ref(), argument.as_bytes()).unwrap().bytes.to_vec()
    }

    #[test]
    fn arguments_are_encoded_as_cpp_expects() {
        assert_eq!(encode(None, "\"hello\""), b"hello");
        assert_eq!(encode(None, "[41]"), b"41");
        assert_eq!(encode(None, "null"), b"");
        assert_eq!(encode(None, "[7,8]"), b"\x8c\x90\x45\x40\x07\0\0\0\x08\0\0\0");
        assert_eq!(
            encode(Some("struct<int,string,int>"), r#"[[1,"tom",20]]"#),
            b"\xc6\x69\x53\x7a\x01\0\0\0\x03tom\x14\0\0\0"
        );
        assert!(request(None, br#"{"id":1,"name":"tom","age":20}"#).is_err());
        assert_eq!(encode(Some("int,string"), r#"[5,"hi"]"#), b"\xe6\xfd\xa8\x85\x05\0\0\0\x02hi");
        assert_eq!(encode(Some("int64"), "41"), b"41");
    }

    #[test]
    fn results_are_printed_as_json() {
        let signature: Signature = "int -> struct<int32,string,int32>".parse().unwrap();
        let shown = reply(Some(&signature), b"\xca\x6b\x67\x58\x01\0\0\0\x03tom\x15\0\0\0").unwrap();
        assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), serde_json::json!([1, "tom", 21]));
        assert_eq!(reply(None, b"15").unwrap(), "15");
        assert_eq!(reply(None, b"hello").unwrap(), "\"hello\"");
        assert_eq!(reply(None, b"").unwrap(), "null");
        let text: Signature = "string -> string".parse().unwrap();
        for (bytes, shown) in
            [(&b""[..], "\"\""), (b"123", "\"123\""), (b"a\0b", "\"a\\u0000b\""), (b"\xff", "[255]")]
        {
            assert_eq!(reply(Some(&text), bytes).unwrap(), shown);
        }
        let number: Signature = "int -> int".parse().unwrap();
        assert_eq!(reply(Some(&number), b"123").unwrap(), "123");
    }

    #[test]
    fn declared_boolean_is_printed_as_a_boolean() {
        let boolean: Signature = "int -> bool".parse().unwrap();
        assert_eq!(reply(Some(&boolean), b"1").unwrap(), "true");
        assert_eq!(reply(Some(&boolean), b"0").unwrap(), "false");
        for wrong in [&b""[..], b"2", b"yes", b"\xff"] {
            assert!(reply(Some(&boolean), wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn sole_argument_as_text_has_the_declared_type() {
        for (types, argument, text) in [
            ("bool", "true", &b"1"[..]),
            ("int8", "-128", b"-128"),
            ("uint64", "\"18446744073709551615\"", b"18446744073709551615"),
            ("double", "41", b"41"),
            ("string", "\"41\"", b"41"),
            ("string", "[[255,0]]", b"\xff\0"),
        ] {
            assert_eq!(encode(Some(types), argument), text, "{types} {argument}");
        }
        for (types, argument) in [
            ("int8", "128"),
            ("uint32", "-1"),
            ("int", "1.5"),
            ("int", "\"x\""),
            ("int", "true"),
            ("int", "[7,8]"),
            ("int", "null"),
            ("bool", "1"),
            ("double", "\"x\""),
            ("string", "41"),
        ] {
            let signature: Signature = types.parse().unwrap();
            assert!(request(Some(&signature), argument.as_bytes()).is_err(), "{types} {argument}");
        }
    }
}
