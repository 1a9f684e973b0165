//! Arguments and results of functions: lists by position on one side, names on the other.

use bytes::Bytes;
use polyrpc::Format;
use polyrpc::codec::Body;
use polyrpc::payload::schema::Message;
use polyrpc::payload::struct_pack::{Form, Plan, Scalar, Type};
use serde_json::{Map, Value};

use crate::direction::Direction;
use crate::struct_pack::Signature;
use crate::{Error, cpp, msgpack};

/// Whether messages are lists by position.
pub(super) fn is_positional(format: Format) -> bool {
    matches!(format, Format::MessagePackArray | Format::RestRpc | Format::StructPack)
}

/// Decodes arguments as a list, or a result.
pub(super) fn decode(
    format: Format,
    signature: &Signature,
    direction: Direction,
    bytes: &[u8],
) -> Result<Value, Error> {
    if format == Format::MessagePackArray {
        let value = match bytes.is_empty() {
            true => Value::Null,
            false => {
                let text = msgpack::to_json(bytes).map_err(|error| invalid(&error))?;
                serde_json::from_str(&text).map_err(|error| invalid(&error))?
            }
        };
        if direction == Direction::Request {
            check_count(signature, &value)?;
        }
        return Ok(value);
    }
    let types: &[Type] = match direction {
        Direction::Request => &signature.arguments,
        Direction::Response => signature.answer.as_slice(),
    };
    let value = match types {
        [] => Value::Null,
        [sole] if format == Format::RestRpc && cpp::is_text(types) => text(sole, bytes)?,
        [sole] if direction == Direction::Response => value_by_plan(sole.clone(), bytes)?,
        types => return value_by_plan(Type::tuple(types.to_vec()), bytes),
    };
    Ok(match direction {
        Direction::Request if !value.is_null() => Value::Array(vec![value]),
        _ => value,
    })
}

/// Missing arguments would become zeros, and surplus ones of a function without a `.proto` would be sent on.
fn check_count(signature: &Signature, arguments: &Value) -> Result<(), Error> {
    let sent = match arguments {
        Value::Array(list) => list.len(),
        Value::Null => 0,
        _ => return Err(Error::new("the arguments are not a list")),
    };
    match signature.arguments.len() {
        count if count == sent => Ok(()),
        count => Err(Error::new(format!("the function takes a list of {count} arguments, not of {sent}"))),
    }
}

fn value_by_plan(ty: Type, bytes: &[u8]) -> Result<Value, Error> {
    let plan = Plan::new(ty).map_err(|error| invalid(&error))?;
    plan.decode_json(bytes).map_err(|error| invalid(&error))
}

/// A number, a boolean or a string that is sent as text.
fn text(ty: &Type, bytes: &[u8]) -> Result<Value, Error> {
    let text = std::str::from_utf8(bytes).map_err(|error| invalid(&error))?;
    match (ty, text) {
        (Type::String(_), text) => Ok(Value::from(text)),
        (Type::Scalar(Scalar::Bool), text) => {
            cpp::boolean(text).map(Value::from).ok_or_else(|| invalid(&cpp::NO_BOOLEAN))
        }
        (_, text) => serde_json::from_str(text).map_err(|error| invalid(&error)),
    }
}

/// Encodes arguments, which are a list, or a result.
pub(super) fn encode(
    format: Format,
    signature: &Signature,
    direction: Direction,
    value: &Value,
) -> Result<Body, Error> {
    if format == Format::MessagePackArray {
        // The text of a value is JSON.
        let (bytes, _) = super::plain::to_msgpack(value.to_string().as_bytes())?;
        return Ok(Body { positional: direction == Direction::Request, ..Body::new(format, bytes) });
    }
    let bytes = match (direction, &signature.answer) {
        (Direction::Request, _) if format == Format::RestRpc => {
            let body = cpp::request(Some(signature), value.to_string().as_bytes())?;
            return Ok(body);
        }
        (Direction::Request, _) => signature.write(value).map_err(|error| invalid(&error))?,
        (Direction::Response, None) => Vec::new(),
        (Direction::Response, Some(ty))
            if format == Format::RestRpc && cpp::is_text(std::slice::from_ref(ty)) =>
        {
            as_text(ty, value)
        }
        (Direction::Response, Some(ty)) => Plan::new(ty.clone())
            .and_then(|plan| plan.encode_json(value, Form::Bare))
            .map_err(|error| invalid(&error))?,
    };
    Ok(Body::new(format, Bytes::from(bytes)))
}

fn as_text(ty: &Type, value: &Value) -> Vec<u8> {
    match (ty, value) {
        // C++ reads no words: `true` would be an error, or false.
        (Type::Scalar(_), Value::Bool(truth)) => u8::from(*truth).to_string().into_bytes(),
        (_, Value::String(text)) => text.clone().into_bytes(),
        (_, Value::Null) => Vec::new(),
        (_, other) => other.to_string().into_bytes(),
    }
}

/// Checks that a message's fields can be the arguments, or its only field the result.
///
/// # Errors
///
/// If they differ.
pub(super) fn check(message: &Message, signature: &Signature, direction: Direction) -> Result<(), String> {
    let (fields, name) = (message.fields().len(), message.full_name());
    match (direction, &signature.answer) {
        (Direction::Request, _) if fields != signature.arguments.len() => Err(format!(
            "{name} has {fields} fields, and the function {} arguments",
            signature.arguments.len()
        )),
        (Direction::Response, None) if fields != 0 => {
            Err(format!("{name} has fields, and the function no result"))
        }
        (Direction::Response, Some(_)) if fields != 1 => {
            Err(format!("{name} must have one field for the result of the function"))
        }
        _ => Ok(()),
    }
}

/// Converts a list of arguments, or a result, to an object of the message's fields.
pub(super) fn to_object(message: &Message, direction: Direction, value: Value) -> Result<Value, Error> {
    let values = match (direction, value) {
        (Direction::Request, Value::Array(values)) => values,
        (_, Value::Null) => Vec::new(),
        (Direction::Request, _) => return Err(Error::new("the arguments are not a list")),
        (Direction::Response, value) => vec![value],
    };
    let names = names(message);
    if values.len() > names.len() {
        return Err(Error::new(format!("there are more values than fields in {}", message.full_name())));
    }
    Ok(Value::Object(names.into_iter().map(str::to_owned).zip(values).collect()))
}

/// The inverse. `defaults` has every field that the object may omit.
pub(super) fn from_object(message: &Message, direction: Direction, object: Map<String, Value>) -> Value {
    let mut object = object;
    let mut values: Vec<_> =
        names(message).into_iter().map(|name| object.remove(name).unwrap_or(Value::Null)).collect();
    match direction {
        Direction::Request => Value::Array(values),
        Direction::Response => values.pop().unwrap_or(Value::Null),
    }
}

/// The fields' names in the order of their numbers.
fn names(message: &Message) -> Vec<&str> {
    let mut fields: Vec<_> = message.fields().iter().collect();
    fields.sort_by_key(|field| field.number());
    fields.into_iter().map(|field| field.name()).collect()
}

fn invalid(error: &dyn std::fmt::Display) -> Error {
    Error::new(format!("the message does not match the types of the function: {error}"))
}
