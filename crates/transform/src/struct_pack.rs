//! struct_pack with explicit type names, which the encoding does not contain.

use std::str::FromStr;

use polyrpc::payload::struct_pack::{Error, Form, Plan, Type};
use serde_json::Value;

/// The types of a function's arguments and result: `int, string -> vector<int>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    pub(crate) arguments: Vec<Type>,
    pub(crate) answer: Option<Type>,
}

impl FromStr for Signature {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (arguments, answer) = match text.split_once("->") {
            Some((arguments, answer)) => (arguments, Some(answer.parse()?)),
            None => (text, None),
        };
        let arguments = match arguments.trim() {
            "" => Vec::new(),
            arguments => Type::parse_list(arguments)?,
        };
        Ok(Self { arguments, answer })
    }
}

impl Signature {
    /// Returns the types of the arguments.
    pub fn arguments(&self) -> &[Type] {
        &self.arguments
    }

    /// Returns the type of the result, if it is declared.
    pub fn answer(&self) -> Option<&Type> {
        self.answer.as_ref()
    }

    /// Encodes a list of arguments; a sole one needs no list.
    ///
    /// # Errors
    ///
    /// If they do not match the types.
    pub fn write(&self, argument: &Value) -> Result<Vec<u8>, Error> {
        if self.arguments.is_empty() {
            return Ok(Vec::new());
        }
        let plan = Plan::new(Type::tuple(self.arguments.clone()))?;
        plan.encode_json(argument, Form::Bare).or_else(|error| match self.arguments.len() {
            1 => plan.encode_json(&Value::Array(vec![argument.clone()]), Form::Bare),
            _ => Err(error),
        })
    }
}

/// Decodes a result by the type literal it contains, or else by the given type; `None` if its type is unknown.
///
/// # Errors
///
/// If the bytes are not of that type.
pub fn read(signature: Option<&Signature>, bytes: &[u8]) -> Result<Option<Value>, Error> {
    let declared = signature.and_then(|signature| signature.answer.clone());
    let plan = match (Plan::from_bytes(bytes)?, declared) {
        (Some(plan), _) => plan,
        (None, Some(ty)) => Plan::new(ty)?,
        (None, None) => return Ok(None),
    };
    plan.decode_json(bytes).map(Some)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn signature(text: &str) -> Signature {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn arguments_are_a_list_or_a_single_value() {
        let add = b"\x8c\x90\x45\x40\x07\0\0\0\x08\0\0\0";
        assert_eq!(signature("int, int").write(&json!([7, 8])).unwrap(), add);
        let list = signature("vector<int> -> int");
        assert_eq!(list.write(&json!([[1, 2]])).unwrap(), list.write(&json!([1, 2])).unwrap());
        assert_eq!(signature("-> int").write(&Value::Null).unwrap(), b"");
        assert!(signature("int, int").write(&json!([7])).is_err());
        assert!("int ->".parse::<Signature>().is_err());
    }

    #[test]
    fn response_is_decoded_by_its_type_literal_or_the_given_type() {
        let (value, answer) = (json!([1, "tom"]), "struct<int, string>".parse::<Type>().unwrap());
        let plan = Plan::new(answer).unwrap();
        let bare = plan.encode_json(&value, Form::Bare).unwrap();
        let literal = plan.encode_json(&value, Form::Literal).unwrap();
        let declared = signature("int -> struct<int, string>");
        assert_eq!(read(Some(&declared), &bare).unwrap(), Some(value.clone()));
        assert_eq!(read(None, &literal).unwrap(), Some(value));
        assert_eq!(read(Some(&signature("int")), &bare).unwrap(), None);
        assert!(read(Some(&signature("-> int")), &bare).is_err());
    }
}
