use polyrpc_payload::schema::{Message, WellKnown};

use super::declaration::Declaration;
use crate::path::{Step, is_same_name};

/// Members of an object of a format that names its fields (JSON, MessagePack).
#[derive(Debug)]
pub(super) struct Object<'s> {
    declared: Option<Declaration<'s>>,
    any: Option<Any>,
}

/// Form and content of a `google.protobuf.Any`.
#[derive(Debug)]
struct Any {
    /// Whether it has the fields of its message, and `@type`.
    is_canonical: bool,
    /// `None` if the type is unknown.
    message: Option<Message>,
}

/// Content of a member.
#[derive(Debug)]
pub(super) enum Content<'s> {
    /// A value, by its declaration if the schema is known.
    Value(Option<Declaration<'s>>),
    /// The bytes of the message in an `Any`, if its type is known.
    Packed(Option<Message>),
    /// A part of an `Any` of an unknown type.
    Opaque,
    /// The schema does not declare the member.
    Undeclared,
}

impl<'s> Object<'s> {
    /// `texts`: returns the members that are texts. It is called for an `Any`, whose type may follow its content.
    pub(super) fn new(
        declared: Option<Declaration<'s>>,
        texts: impl FnOnce() -> Vec<(String, String)>,
    ) -> Self {
        let any = declared.filter(|declared| declared.well_known() == Some(WellKnown::Any));
        let any = any.map(|declared| Any::new(declared, &texts()));
        Self { declared, any }
    }

    /// Returns the steps from the object to a member, and what the member is.
    pub(super) fn member<'n>(&self, name: &'n str) -> (Vec<Step<'n>>, Content<'s>) {
        match (self.declared, &self.any) {
            (None, _) => (vec![Step::Name(name)], Content::Value(None)),
            (Some(declared), Some(any)) => any.member(declared, name),
            (Some(declared), None) if declared.is_dynamic() => {
                (dynamic_steps(name), Content::Value(Some(declared)))
            }
            (Some(declared), None) => (vec![Step::Name(name)], content(declared, name)),
        }
    }
}

impl Any {
    fn new(declared: Declaration<'_>, texts: &[(String, String)]) -> Self {
        let is_canonical = texts.iter().any(|(name, _)| name == TYPE);
        let is_url = |name: &str| match is_canonical {
            true => name == TYPE,
            false => declared.number(name) == Some(TYPE_URL),
        };
        let mut urls = texts.iter().filter(|(name, _)| is_url(name)).map(|(_, url)| url);
        let message = match (urls.next(), urls.next()) {
            (Some(url), None) => declared.message_of(url),
            // Parsers differ in which one counts.
            _ => None,
        };
        Self { is_canonical, message }
    }

    fn member<'s, 'n>(&self, declared: Declaration<'s>, name: &'n str) -> (Vec<Step<'n>>, Content<'s>) {
        if !self.is_canonical {
            return match declared.number(name) {
                Some(VALUE) => (vec![PACKED], Content::Packed(self.message.clone())),
                _ => (vec![Step::Name(name)], content(declared, name)),
            };
        }
        match &self.message {
            _ if name == TYPE => (vec![Step::Name(name)], Content::Value(Some(declared.of_text()))),
            // Its names need not be those of the declaration.
            None => (vec![PACKED], Content::Opaque),
            // A message with a special representation is under this key.
            Some(message) if message.well_known().is_some() => match name {
                "value" => (vec![PACKED], Content::Value(Some(declared.of_other(message)))),
                _ => (vec![Step::Name(name)], Content::Undeclared),
            },
            Some(message) => (vec![PACKED, Step::Name(name)], content(declared.of_other(message), name)),
        }
    }
}

fn content<'s>(declared: Declaration<'s>, name: &str) -> Content<'s> {
    declared.member(name).map_or(Content::Undeclared, |member| Content::Value(Some(member)))
}

/// Returns the steps to a member of a value of any type. Whether the value has its special representation or the
/// fields of its message does not matter, since a path may have the names of these fields or not.
fn dynamic_steps(name: &str) -> Vec<Step<'_>> {
    match DYNAMIC_FIELDS.iter().any(|field| is_same_name(field, name)) {
        true => vec![Step::Optional(name)],
        false => vec![Step::Optional("struct_value"), Step::Optional("fields"), Step::Name(name)],
    }
}

/// Steps to the elements of a list that is a value of any type.
pub(super) const DYNAMIC_LIST: [Step<'static>; 2] = [Step::Optional("list_value"), Step::Optional("values")];

/// Fields of `google.protobuf.Struct`, `Value` and `ListValue`.
const DYNAMIC_FIELDS: [&str; 8] = [
    "fields",
    "values",
    "null_value",
    "number_value",
    "string_value",
    "bool_value",
    "struct_value",
    "list_value",
];

/// Whether this is the name of a text among these fields, which is hashed like a text in ProtoJSON.
pub(super) fn is_text_field(name: &str) -> bool {
    is_same_name(name, "string_value")
}

/// Step from an `Any` to its message.
pub(super) const PACKED: Step<'static> = Step::Optional("value");

/// Key of the type in ProtoJSON.
const TYPE: &str = "@type";
/// Numbers of the fields of an `Any`.
pub(super) const TYPE_URL: u32 = 1;
pub(super) const VALUE: u32 = 2;
