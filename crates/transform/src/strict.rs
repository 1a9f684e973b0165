//! Checks the user's JSON against its message: anything that would be lost is an error with its position.

use polyrpc::payload::schema::{Field, Kind, Message, MessageType, Pool, Spelling, WellKnown};
use polyrpc::payload::transcode;
use polyrpc::{Format, Json};

use crate::json::{no_json, not_utf8};
use crate::position::{Position, Value};
use crate::{Error, closest};

/// Encodes the user's JSON in protobuf's binary format.
///
/// # Errors
///
/// If it is not JSON, or contains a name that the message does not declare, with its position.
pub fn to_protobuf(message: &Message, argument: &[u8]) -> Result<Vec<u8>, Error> {
    let text = std::str::from_utf8(argument).map_err(|_| not_utf8())?;
    let value = Value::parse(text).map_err(no_json)?;
    if let Err(wrong) = check_message(message.pool(), message, value) {
        return Err(wrong.into_error(message));
    }
    let parsed = transcode::parse(message, Format::Json(Json::Proto3), argument);
    let parsed = parsed.map_err(|error| Wrong::from(message, value, error).into_error(message))?;
    match parsed.unknown {
        0 => Ok(parsed.protobuf),
        _ => {
            Err(Wrong::new(value.at(), "it has fields or enum values that are not declared")
                .into_error(message))
        }
    }
}

/// Says where the first name or enum value is that the message does not declare, if there is one.
pub(crate) fn find_undeclared(message: &Message, argument: &[u8]) -> Option<String> {
    let value = Value::parse(std::str::from_utf8(argument).ok()?).ok()?;
    let Wrong { at, text, .. } = check_message(message.pool(), message, value).err()?;
    Some(format!("{at}: {text}"))
}

/// The error of a value, and its position.
struct Wrong {
    at: Position,
    text: String,
    hint: Option<String>,
}

impl Wrong {
    fn new(at: Position, text: impl Into<String>) -> Self {
        Self { at, text: text.into(), hint: None }
    }

    fn with_hint(self, hint: String) -> Self {
        Self { hint: Some(hint), ..self }
    }

    fn into_error(self, message: &Message) -> Error {
        let Self { at, text, hint } = self;
        let failure =
            Error::new(format!("the argument does not match {}: {at}: {text}", message.full_name()));
        match hint {
            Some(hint) => failure.with_hint(hint),
            None => failure,
        }
    }

    /// The error of the conversion, with its position in the text.
    fn from(message: &Message, value: Value<'_>, error: transcode::Error) -> Self {
        match error {
            transcode::Error::Value(misfit) => {
                let found = follow_path(message.pool(), message, value, &misfit.path).unwrap_or(value);
                let text = transcode::Error::Value(misfit).to_string();
                Self::new(found.at(), text)
            }
            other => Self::new(value.at(), other.to_string()),
        }
    }
}

/// Finds the first undeclared name.
fn check_message(pool: &Pool, message: &MessageType, value: Value<'_>) -> Result<(), Wrong> {
    match message.well_known() {
        Some(WellKnown::Any) => return check_any(pool, value),
        // They have special JSON forms without undeclared names.
        Some(known) if known != WellKnown::Empty => return Ok(()),
        _ => {}
    }
    // The conversion reports values that are not objects.
    for member in value.members().unwrap_or_default() {
        let Some(field) = find_field(message, &member.name) else {
            return Err(unknown(message, &member.name, member.at));
        };
        check_field(pool, field, member.value)?;
    }
    Ok(())
}

/// A message type and the JSON members of its fields.
fn check_any(pool: &Pool, value: Value<'_>) -> Result<(), Wrong> {
    let members = value.members().unwrap_or_default();
    let url = members.iter().find(|member| member.name == "@type").and_then(|member| member.value.as_text());
    let name = url.as_deref().map(|url| url.rsplit('/').next().unwrap_or(url));
    let Some(message) = name.and_then(|name| pool.message(name)) else { return Ok(()) };
    if message.well_known().is_some() {
        return Ok(());
    }
    for member in members.iter().filter(|member| member.name != "@type") {
        match find_field(&message, &member.name) {
            Some(field) => check_field(pool, field, member.value)?,
            None => return Err(unknown(&message, &member.name, member.at)),
        }
    }
    Ok(())
}

fn check_field(pool: &Pool, field: &Field, value: Value<'_>) -> Result<(), Wrong> {
    if field.is_map() {
        let entry = field.kind().message().map(|id| pool.message_at(id));
        let Some(kind) = entry.as_ref().and_then(|entry| entry.field(2)).map(Field::kind) else {
            return Ok(());
        };
        let mut members = value.members().unwrap_or_default().into_iter();
        return members.try_for_each(|member| check_kind(pool, kind, member.value));
    }
    match value.items().filter(|_| field.is_repeated()) {
        Some(items) => items.into_iter().try_for_each(|item| check_kind(pool, field.kind(), item)),
        None => check_kind(pool, field.kind(), value),
    }
}

fn check_kind(pool: &Pool, kind: Kind, value: Value<'_>) -> Result<(), Wrong> {
    if let Some(id) = kind.message() {
        return check_message(pool, &pool.message_at(id), value);
    }
    let (Kind::Enum(id), Some(name)) = (kind, value.as_text()) else { return Ok(()) };
    let declared = pool.enum_type(id);
    if declared.number(&name).is_some() {
        return Ok(());
    }
    let names: Vec<_> = declared.values().iter().map(|value| value.name()).collect();
    let text = format!("enum {} has no value `{}`", declared.full_name(), name.escape_debug());
    Err(Wrong::new(value.at(), text).with_hint(closest::hint(&name, &names, "its values are")))
}

fn unknown(message: &MessageType, name: &str, at: Position) -> Wrong {
    let fields: Vec<_> = message.fields().iter().map(Field::name).collect();
    let json = message.fields().iter().map(Field::json_name);
    let near = closest::closest(name, fields.iter().copied().chain(json));
    let hint = match near {
        Some(near) => format!("did you mean `{near}`?"),
        None if fields.is_empty() => "it has no fields".to_owned(),
        None => closest::hint(name, &fields, "its fields are"),
    };
    let text = format!("{} has no field `{}`", message.full_name(), name.escape_debug());
    Wrong::new(at, text).with_hint(hint)
}

fn find_field<'m>(message: &'m MessageType, name: &str) -> Option<&'m Field> {
    let index = message
        .index_spelled(Spelling::Json, name, usize::MAX)
        .or_else(|| message.index_spelled(Spelling::Brpc, name, usize::MAX));
    index.and_then(|index| message.fields().get(index as usize))
}

/// Follows the path of a value, in names of the `.proto`: `user.tags[2]`, `scores["ann"]`.
fn follow_path<'a>(pool: &Pool, message: &MessageType, value: Value<'a>, path: &str) -> Option<Value<'a>> {
    let path = path.strip_prefix('.').unwrap_or(path);
    if path.is_empty() {
        return Some(value);
    }
    let end = path.find(['.', '[']).unwrap_or(path.len());
    // An extension's name itself contains brackets and dots.
    let (name, rest) = match path.strip_prefix('[') {
        Some(extension) => path.split_at(extension.find(']')? + 2),
        None => path.split_at(end),
    };
    let field = message.field_named(name)?;
    let is_field =
        |name: &str| find_field(message, name).is_some_and(|found| found.number() == field.number());
    let member = value.members()?.into_iter().find(|member| is_field(&member.name))?;
    let (value, rest) = step(member.value, rest)?;
    let mut kind = field.kind();
    if field.is_map() {
        kind = pool.message_at(kind.message()?).field(2)?.kind();
    }
    match kind.message() {
        Some(id) => follow_path(pool, &pool.message_at(id), value, rest),
        None => Some(value),
    }
}

/// Takes the next item or entry of the path.
fn step<'a, 'p>(value: Value<'a>, path: &'p str) -> Option<(Value<'a>, &'p str)> {
    let Some(inner) = path.strip_prefix('[') else { return Some((value, path)) };
    if let Some(quoted) = inner.strip_prefix('"') {
        let (key, rest) = quoted.rsplit_once("\"]")?;
        let member = value.members()?.into_iter().find(|it| it.name.escape_debug().to_string() == key)?;
        return Some((member.value, rest));
    }
    let (key, rest) = inner.split_once(']')?;
    let item = match value.items() {
        Some(items) => items.into_iter().nth(key.parse().ok()?)?,
        None => value.members()?.into_iter().find(|member| member.name == key)?.value,
    };
    Some((item, rest))
}

#[cfg(test)]
mod tests {
    use protox::Compiler;
    use protox::file::{File, FileResolver};

    use super::*;

    struct Source;

    impl FileResolver for Source {
        fn open_file(&self, name: &str) -> Result<File, protox::Error> {
            match name {
                "shop.proto" => File::from_source(name, SHOP),
                _ => protox::file::GoogleFileResolver::new().open_file(name),
            }
        }
    }

    const SHOP: &str = r#"
        syntax = "proto3";
        package shop;
        import "google/protobuf/any.proto";
        import "google/protobuf/struct.proto";
        enum Colour { RED = 0; GREEN = 1; }
        message Item { string name = 1; int32 unit_price = 2; Colour colour = 3; }
        message Order {
          string id = 1;
          repeated Item items = 2;
          map<string, Item> by_name = 3;
          google.protobuf.Any any = 4;
          google.protobuf.Struct free = 5;
          map<int32, int32> counts = 6;
        }
    "#;

    fn order() -> Message {
        let mut compiler = Compiler::with_file_resolver(Source);
        compiler.include_imports(true).open_file("shop.proto").unwrap();
        Pool::decode(&compiler.encode_file_descriptor_set()).unwrap().message("shop.Order").unwrap()
    }

    #[test]
    fn unknown_member_error_names_its_position_and_a_suggestion() {
        let order = order();
        for (json, text) in [
            (r#"{"idd":"x"}"#, "line 1, column 2: shop.Order has no field `idd`\nhint: did you mean `id`?"),
            (
                "{\"id\":\"x\",\n \"items\":[{\"name\":\"a\"},{\"unitprice\":1}]}",
                "line 2, column 25: shop.Item has no field `unitprice`\nhint: did you mean `unitPrice`?",
            ),
            (
                r#"{"by_name":{"a":{"weight":1}}}"#,
                "line 1, column 18: shop.Item has no field `weight`\nhint: its fields are name, unit_price, colour",
            ),
            (
                r#"{"items":[{"colour":"GREN"}]}"#,
                "line 1, column 21: enum shop.Colour has no value `GREN`\nhint: did you mean `GREEN`?",
            ),
            (
                r#"{"any":{"@type":"type.googleapis.com/shop.Item","nam":"x"}}"#,
                "line 1, column 49: shop.Item has no field `nam`\nhint: did you mean `name`?",
            ),
            (r#"{"id":7}"#, "line 1, column 7: id: expected string, found number"),
            (
                r#"{"items":[{"name":"a"},{"unitPrice":"x"}]}"#,
                "line 1, column 37: items[1].unit_price: expected int32, found string",
            ),
            (
                r#"{"by_name":{"a b":{"unitPrice":true}}}"#,
                "line 1, column 32: by_name[\"a b\"].unit_price: expected int32, found bool",
            ),
            (r#"{"counts":{"1":"x"}}"#, "line 1, column 16: counts[\"1\"]: expected int32, found string"),
            ("[]", "line 1, column 1: expected object, found array"),
        ] {
            let failure = to_protobuf(&order, json.as_bytes()).unwrap_err().to_string();
            assert_eq!(failure, format!("the argument does not match shop.Order: {text}"), "{json}");
        }
    }

    #[test]
    fn declared_fields_are_accepted_in_every_spelling() {
        let order = order();
        for json in [
            "{}",
            r#"{"byName":{"a":{"unitPrice":"7"}},"by_name":null}"#,
            r#"{"free":{"any":{"thing":[1]}},"items":[{"colour":1},{"colour":"RED"}]}"#,
        ] {
            let read = to_protobuf(&order, json.as_bytes());
            let twice = json.contains("by_name");
            assert_eq!(read.is_err(), twice, "{json}: {read:?}");
        }
    }

    #[test]
    fn invalid_json_error_names_its_position() {
        let failure = to_protobuf(&order(), b"{\"id\":\n  x}").unwrap_err().to_string();
        assert!(
            failure.starts_with("the argument is not JSON: line 2, column 3: expected value"),
            "{failure}"
        );
    }
}
