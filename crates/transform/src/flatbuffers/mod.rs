//! Messages of a `.fbs`: JSON in, FlatBuffers on the wire, JSON out. The JSON is flatc's: enums by name, flags as one
//! text of names, a union's type in a member of its own, defaults omitted.

mod prune;
mod read;
mod write;

use std::sync::Arc;

use polyrpc::layer::StreamType;
use polyrpc::payload::flatbuffers::{Message, Opaque};
use polyrpc_build::fbs::{self, Schema};

use crate::json::no_json;
use crate::{Direction, Error, closest, service_hint, split};
pub(crate) use prune::prune;

/// Form of values in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// flatc's form: bytes as a list of numbers.
    Flatc,
    /// Protobuf's form: bytes in base64, infinities as words.
    Protobuf,
}

/// Converts a message to JSON of at most about `max` bytes.
pub(crate) fn to_json(
    schema: &Schema,
    table: usize,
    bytes: &bytes::Bytes,
    style: Style,
    max: usize,
) -> Result<String, Error> {
    let wrong = |error: &dyn std::fmt::Display| {
        Error::new(format!("the message does not match {}: {error}", schema.tables[table].full_name()))
    };
    let message = Message::<Opaque>::read(bytes.clone()).map_err(|error| wrong(&error))?;
    read::message(schema, table, message.root(), style, max).map_err(|error| wrong(&error))
}

/// Converts JSON to a message.
pub(crate) fn from_json(
    schema: &Schema,
    table: usize,
    value: &serde_json::Value,
    style: Style,
) -> Result<bytes::Bytes, Error> {
    write::message(schema, table, value, style).map_err(|error| {
        Error::new(format!("the message does not match {}: {error}", schema.tables[table].full_name()))
    })
}

/// A method whose messages a schema describes.
#[derive(Debug)]
pub struct Method {
    schema: Arc<Schema>,
    request: usize,
    response: usize,
    /// Its name on the wire.
    wire_name: String,
    stream_type: StreamType,
}

impl Method {
    /// Finds a method in a schema. `numbered`: the method is called by number, as in fb_rpc.
    ///
    /// # Errors
    ///
    /// If the schema has no such method, with a hint.
    pub fn find(schema: impl Into<Arc<Schema>>, numbered: bool, target: &str) -> Result<Self, Error> {
        let schema = schema.into();
        let (service_name, method_name) = split(target).ok_or_else(|| {
            Error::new(format!("`{target}` is not a method that a .fbs could describe"))
                .with_hint("write Service/Method")
        })?;
        let named = |full: &str| full == service_name || full.rsplit('.').next() == Some(service_name);
        let service =
            schema.services.iter().find(|service| named(&service.full_name())).ok_or_else(|| {
                let names: Vec<_> = schema.services.iter().map(fbs::Service::full_name).collect();
                let names: Vec<_> = names.iter().map(String::as_str).collect();
                Error::new(format!("the schema has no service `{service_name}`"))
                    .with_hint(service_hint(service_name, &names))
            })?;
        let index =
            service.methods.iter().position(|method| method.name == method_name).ok_or_else(|| {
                let names: Vec<_> = service.methods.iter().map(|method| method.name.as_str()).collect();
                Error::new(format!("there is no method `{method_name}` in {}", service.full_name()))
                    .with_hint(closest::hint(method_name, &names, "it has"))
            })?;
        let method = &service.methods[index];
        let id = method.id.map_or(index, |id| id as usize);
        let wire_name = match numbered {
            true => format!("{}/{method_name}#{id},{index}", service.full_name()),
            false => format!("{}/{method_name}", service.full_name()),
        };
        let (request, response) = (method.request, method.response);
        let stream_type =
            StreamType { client_streaming: method.client_streams, server_streaming: method.server_streams };
        Ok(Self { schema, request, response, wire_name, stream_type })
    }

    /// Returns the schema that declares it.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Returns the index of the table that is its request or response.
    pub fn table(&self, direction: Direction) -> usize {
        match direction {
            Direction::Request => self.request,
            Direction::Response => self.response,
        }
    }

    /// Returns the name on the wire.
    pub fn wire_name(&self) -> &str {
        &self.wire_name
    }

    /// Returns the directions in which the method streams, by its attribute `streaming`.
    pub fn stream_type(&self) -> StreamType {
        self.stream_type
    }

    /// Encodes a JSON object as the request.
    ///
    /// # Errors
    ///
    /// If it does not match the table.
    pub fn request(&self, argument: &[u8]) -> Result<bytes::Bytes, Error> {
        let value = serde_json::from_slice(argument).map_err(no_json)?;
        let name = self.schema.tables[self.request].full_name();
        write::message(&self.schema, self.request, &value, Style::Flatc)
            .map_err(|error| Error::new(format!("the argument does not match {name}: {error}")))
    }

    /// Decodes a reply as JSON.
    ///
    /// # Errors
    ///
    /// If it is malformed.
    pub fn reply(&self, bytes: &bytes::Bytes) -> Result<String, Error> {
        let name = self.schema.tables[self.response].full_name();
        let wrong =
            |error: &dyn std::fmt::Display| Error::new(format!("the reply does not match {name}: {error}"));
        let message = Message::<Opaque>::read(bytes.clone()).map_err(|error| wrong(&error))?;
        read::message(&self.schema, self.response, message.root(), Style::Flatc, usize::MAX)
            .map_err(|error| wrong(&error))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// A message encoded by flatc decodes to the JSON, and the JSON encodes to an equal message.
    #[test]
    fn json_equals_that_of_flatc_in_both_directions() {
        let schema = rich();
        let json: serde_json::Value =
            serde_json::from_slice(include_bytes!("../../vectors/flatbuffers/rich.json")).unwrap();
        let theirs =
            Message::<Opaque>::read(&include_bytes!("../../vectors/flatbuffers/rich.bin")[..]).unwrap();
        let table = schema.tables.iter().position(|table| table.name == "Monster").unwrap();
        let read = read::message(&schema, table, theirs.root(), Style::Flatc, usize::MAX).unwrap();
        let read: serde_json::Value = serde_json::from_str(&read).unwrap();
        let ours = write::message(&schema, table, &json, Style::Flatc).unwrap();
        let ours = Message::<Opaque>::read(ours).unwrap();
        let again = read::message(&schema, table, ours.root(), Style::Flatc, usize::MAX).unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(&again).unwrap(), read);
        for member in
            ["name", "color", "mood", "weapons", "equipped", "equipped_type", "any_of_several_type", "names"]
        {
            assert_eq!(read[member], json[member], "{member}");
        }
        assert_eq!(read["pos"]["mood"], "Angry");
        assert_eq!(read["packs"][0]["counts"], json["packs"][0]["counts"]);
    }

    #[test]
    fn json_error_names_its_position() {
        let schema = rich();
        let table = schema.tables.iter().position(|table| table.name == "Monster").unwrap();
        for (json, want) in [
            (r#"{}"#, "`name` is required"),
            (r#"{"name":"x","hp":70000}"#, "hp: 70000 is not a valid i16"),
            (r#"{"name":"x","weapon":[]}"#, "there is no field `weapon`"),
            (r#"{"name":"x","weapons":[{"name":"a"},{"name":7}]}"#, "weapons[1].name: expected a string"),
            (r#"{"name":"x","mood":"Glad"}"#, "mood: `Mood` has no value `Glad`"),
            (r#"{"name":"x","equipped":{}}"#, "equipped: expected its type in `equipped_type`"),
            (r#"[]"#, "expected an object"),
        ] {
            let value = serde_json::from_str(json).unwrap();
            assert_eq!(write::message(&schema, table, &value, Style::Flatc).unwrap_err(), want, "{json}");
        }
    }

    #[test]
    fn members_that_are_not_declared_are_removed_from_values_of_every_type() {
        let schema = rich();
        let table = schema.tables.iter().position(|table| table.name == "Monster").unwrap();
        let vector = serde_json::json!({ "x": 1, "y": 2, "z": 3, "mood": "Calm" });
        let mut longer = vector.clone();
        longer["w"] = 4.into();
        let weapon = serde_json::json!({ "name": "bow", "more": 1 });
        for (lost, json) in [
            (0, serde_json::json!({ "pos": vector, "path": [vector] })),
            (1, serde_json::json!({ "more": 1 })),
            // No type of a union.
            (1, serde_json::json!({ "hp_type": 1 })),
            (1, serde_json::json!({ "weapons": [weapon] })),
            (3, serde_json::json!({ "pos": longer, "path": [longer, vector, longer] })),
            (
                1,
                serde_json::json!({ "packs": [
                { "id": 1, "counts": [1, 2, 3], "corners": [vector, longer], "flag": true },
            ] }),
            ),
            (1, serde_json::json!({ "equipped_type": "Weapon", "equipped": weapon })),
            (1, serde_json::json!({ "equipped_type": 1, "equipped": weapon })),
            (
                2,
                serde_json::json!({
                    "any_of_several_type": ["Place", "Name", "Weapon"],
                    "any_of_several": [longer, "x", weapon],
                }),
            ),
            (1, serde_json::json!({ "nested": weapon })),
        ] {
            let mut pruned = json.clone();
            pruned["name"] = "x".into();
            assert_eq!(prune(&schema, table, &mut pruned), lost, "{json}");
            let written = write::message(&schema, table, &pruned, Style::Flatc);
            assert!(written.is_ok(), "{json}: {written:?}");
        }
    }

    fn rich() -> Schema {
        let dir: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", "fbs"].iter().collect();
        fbs::read(&[dir.join("rich.fbs")], &[dir]).unwrap()
    }
}
