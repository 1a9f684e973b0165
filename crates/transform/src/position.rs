//! Position of a value in the user's JSON.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{self, MapAccess, Visitor};
use serde_json::value::RawValue;

/// A JSON value, parsed only as far as its extent.
#[derive(Clone, Copy)]
pub(crate) struct Value<'a> {
    /// The whole text.
    text: &'a str,
    /// The part of it that is the value.
    value: &'a str,
}

/// A member of an object.
pub(crate) struct Member<'a> {
    pub(crate) name: Cow<'a, str>,
    pub(crate) value: Value<'a>,
    /// Position of the name.
    pub(crate) at: Position,
}

/// A position in a text, as editors count: from 1, with columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    line: usize,
    column: usize,
}

impl<'a> Value<'a> {
    /// # Errors
    ///
    /// If the text is not one JSON value.
    pub(crate) fn parse(text: &'a str) -> serde_json::Result<Self> {
        let value: &RawValue = serde_json::from_str(text)?;
        Ok(Self { text, value: value.get() })
    }

    pub(crate) fn at(self) -> Position {
        Position::new(self.text, offset(self.text, self.value))
    }

    /// The string, if it is one.
    pub(crate) fn as_text(self) -> Option<String> {
        if self.value.starts_with('"') { serde_json::from_str(self.value).ok() } else { None }
    }

    /// The members, if it is an object.
    pub(crate) fn members(self) -> Option<Vec<Member<'a>>> {
        if !self.value.starts_with('{') {
            return None;
        }
        let Members(members) = serde_json::from_str(self.value).ok()?;
        let member = |(name, value): (Name<'a>, &'a RawValue)| {
            let value = Self { text: self.text, value: value.get() };
            let at = match &name.0 {
                // A quotation mark precedes the name.
                Cow::Borrowed(name) => Position::new(self.text, offset(self.text, name).saturating_sub(1)),
                Cow::Owned(_) => value.at(),
            };
            Member { name: name.0, value, at }
        };
        Some(members.into_iter().map(member).collect())
    }

    /// The items, if it is a list.
    pub(crate) fn items(self) -> Option<Vec<Self>> {
        if !self.value.starts_with('[') {
            return None;
        }
        let items: Vec<&RawValue> = serde_json::from_str(self.value).ok()?;
        Some(items.into_iter().map(|item| Self { text: self.text, value: item.get() }).collect())
    }
}

/// Offset of a part within a text.
fn offset(text: &str, part: &str) -> usize {
    (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize).min(text.len())
}

impl Position {
    fn new(text: &str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line = before.rsplit('\n').next().unwrap_or_default();
        Self { line: before.matches('\n').count() + 1, column: line.chars().count() + 1 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// The members of an object in their order.
struct Members<'a>(Vec<(Name<'a>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}

/// A name, borrowed from the text unless it has escapes.
struct Name<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Name<'a> {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrowed;

        impl<'de> Visitor<'de> for Borrowed {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Borrowed(name)))
            }

            fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
                Ok(Name(Cow::Owned(name.to_owned())))
            }
        }

        deserializer.deserialize_str(Borrowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_of_a_value_or_name_is_found() {
        let text = " {\n  \"é\": 1, \"b\": [true,\n{\"\\u0063\": \"x\"}]}";
        let members = Value::parse(text).unwrap().members().unwrap();
        let positions: Vec<_> =
            members.iter().map(|it| format!("{} {} {}", it.name, it.at, it.value.at())).collect();
        assert_eq!(
            positions,
            ["é line 2, column 3 line 2, column 8", "b line 2, column 11 line 2, column 16"]
        );
        let items = members[1].value.items().unwrap();
        assert_eq!(items[0].at().to_string(), "line 2, column 17");
        let inner = items[1].members().unwrap();
        assert_eq!((inner[0].name.as_ref(), inner[0].value.as_text()), ("c", Some("x".to_owned())));
        // A name with escapes is located by its value.
        assert_eq!(inner[0].at, inner[0].value.at());
    }
}
