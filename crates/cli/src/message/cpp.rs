//! Values for a peer in C++ whose bytes do not say their types (rest_rpc since v0.21): a single number or text is
//! text, anything else is in struct_pack, for which types are named or guessed.

use clap::Args;
use polyrpc::Format;
use polyrpc::codec::{self, Body};
use polyrpc::payload::struct_pack::{Form, Plan, Type};
use serde::ser::{Serialize, SerializeTuple, SerializeTupleStruct, Serializer};
use serde_json::Value;

use super::{json, no_json, readable, unreadable};
use crate::failure::Failure;

/// The types that the function has in C++.
#[derive(Debug, Clone, Default, Args)]
#[group(id = "cpp")]
pub(crate) struct Types {
    /// The types of the function's arguments in C++, for example `int64,vector<string>`; otherwise they are guessed
    /// (rest_rpc since v0.21)
    #[arg(long, value_name = "TYPES")]
    types: Option<String>,
    /// The type of its result in C++ (rest_rpc since v0.21)
    #[arg(long, value_name = "TYPE")]
    returns: Option<String>,
}

impl Types {
    /// Writes the arguments, given as JSON: a list of them, or a single one.
    pub(super) fn request(&self, argument: &[u8]) -> Result<Body, Failure> {
        let value: Value = serde_json::from_slice(argument).map_err(no_json)?;
        let arguments = match value {
            Value::Array(arguments) => arguments,
            Value::Null => Vec::new(),
            sole => vec![sole],
        };
        let types = match &self.types {
            None => return arguments_of(&Guessed(&arguments)),
            Some(types) => Type::parse_list(types).map_err(|error| wrong_type(types, &error))?,
        };
        match (&types[..], &arguments[..]) {
            // One that is no struct is text, whatever its width.
            ([Type::Scalar(_) | Type::String(_)], [_]) => arguments_of(&Guessed(&arguments)),
            _ => {
                let plan = Plan::new(Type::tuple(types)).map_err(|error| unsendable(&error))?;
                let bytes = plan.encode_json(&Value::Array(arguments), Form::Bare);
                let bytes = bytes.map_err(|error| unsendable(&error))?;
                Ok(Body { positional: true, ..Body::new(Format::RestRpc, bytes) })
            }
        }
    }

    /// Reads a result.
    pub(super) fn reply(&self, bytes: &[u8]) -> Result<String, Failure> {
        let told = match &self.returns {
            None => Plan::of_bytes(bytes).ok().flatten(),
            Some(name) => match name.parse::<Type>().map_err(|error| wrong_type(name, &error))? {
                Type::Scalar(_) | Type::String(_) => None,
                ty => Some(Plan::new(ty).map_err(|error| unreadable(&error))?),
            },
        };
        match told.map(|plan| plan.decode_json(bytes)) {
            Some(Ok(value)) => Ok(json::pretty(&value.to_string())),
            Some(Err(error)) if self.returns.is_some() => Err(unreadable(&error)),
            _ => Ok(text(bytes)),
        }
    }
}

/// A number as it is, another text as JSON, and what is none as it can be shown.
fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok("") => "null".to_owned(),
        Ok(text) if matches!(serde_json::from_str(text), Ok(Value::Number(_))) => text.to_owned(),
        Ok(text) if !text.contains('\0') => Value::from(text).to_string(),
        _ => readable(bytes),
    }
}

fn arguments_of(arguments: &Guessed<'_>) -> Result<Body, Failure> {
    codec::arguments(arguments, Format::RestRpc).map_err(|status| unsendable(&status.message()))
}

/// Arguments whose types their JSON tells, as C++ would take them: `int` where a number fits, `double`, `std::string`,
/// `bool`; a list is a `std::vector` of what its items are, an object a struct with its members in order.
struct Guessed<'a>(&'a [Value]);

impl Serialize for Guessed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_empty() {
            return serializer.serialize_unit();
        }
        let mut tuple = serializer.serialize_tuple(self.0.len())?;
        self.0.iter().try_for_each(|value| tuple.serialize_element(&GuessedValue(value)))?;
        tuple.end()
    }
}

struct GuessedValue<'a>(&'a Value);

impl Serialize for GuessedValue<'_> {
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
            Value::Array(items) => serializer.collect_seq(items.iter().map(GuessedValue)),
            Value::Object(members) => {
                let mut object = serializer.serialize_tuple_struct("object", members.len())?;
                members.values().try_for_each(|value| object.serialize_field(&GuessedValue(value)))?;
                object.end()
            }
        }
    }
}

fn wrong_type(name: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("`{name}` names no types: {error}"))
}

fn unsendable(error: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("the argument cannot be sent: {error}"))
        .with_hint("name the types of the function's arguments with --types, for example int32,string")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(types: Option<&str>, argument: &str) -> Vec<u8> {
        let types = Types { types: types.map(str::to_owned), returns: None };
        types.request(argument.as_bytes()).unwrap().bytes.to_vec()
    }

    #[test]
    fn arguments_are_written_as_c_plus_plus_would_take_them() {
        assert_eq!(request(None, "\"hello\""), b"hello");
        assert_eq!(request(None, "[41]"), b"41");
        assert_eq!(request(None, ""), b"");
        assert_eq!(request(None, "[7,8]"), b"\x8c\x90\x45\x40\x07\0\0\0\x08\0\0\0");
        assert_eq!(
            request(None, r#"{"id":1,"name":"tom","age":20}"#),
            b"\xc6\x69\x53\x7a\x01\0\0\0\x03tom\x14\0\0\0"
        );
        assert_eq!(request(Some("int,string"), r#"[5,"hi"]"#), b"\xe6\xfd\xa8\x85\x05\0\0\0\x02hi");
    }

    #[test]
    fn results_are_shown_as_json() {
        let types = Types { types: None, returns: Some("struct<int32,string,int32>".to_owned()) };
        let shown = types.reply(b"\xca\x6b\x67\x58\x01\0\0\0\x03tom\x15\0\0\0").unwrap();
        assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), serde_json::json!([1, "tom", 21]));
        assert_eq!(Types::default().reply(b"15").unwrap(), "15");
        assert_eq!(Types::default().reply(b"hello").unwrap(), "\"hello\"");
        assert_eq!(Types::default().reply(b"").unwrap(), "null");
    }
}
