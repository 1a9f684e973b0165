//! Removes sensitive data from recordings: credentials, and fields by path.

mod declaration;
mod json;
mod msgpack;
mod object;
mod protobuf;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use polyrpc_core::Format;
use polyrpc_payload::schema;
use sha2::Sha256;

use self::declaration::Declaration;
use crate::call::{Call, Field, Message};
use crate::path::{Path, Step};

/// Rules for removing data from calls before they are recorded.
///
/// Credentials are removed unless they are [kept](Self::keep_credentials): the values of metadata such as
/// `authorization` and `cookie`, and of names that end in `-token`, `-secret`, `-password` or `-key`.
///
/// Rules by path fail closed: as soon as there is a rule, messages that cannot be decoded, attachments and messages of
/// streams are recorded without their bodies, and fields that the schema does not declare, or declares with another wire
/// type, are removed. Without a schema, JSON and MessagePack keep all fields that no rule names.
///
/// With a schema, a rule has the same effect in every format. The message in a `google.protobuf.Any` has the path of the
/// `Any`, as in `detail.password`, or that of its value, `detail.value.password`; if its type is unknown, it is removed
/// if a rule may apply in it. Paths in a `google.protobuf.Struct` are those of ProtoJSON, `meta.user.name`, or of the
/// binary format, `meta.fields.user.struct_value.fields.name`.
///
/// ```
/// use polyrpc_record::redact::Redaction;
///
/// let redaction = Redaction::new()
///     .drop_field("user.password".parse()?)
///     .hash_field("user.email".parse()?, b"key of this team");
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Default)]
pub struct Redaction {
    keeps_credentials: bool,
    metadata: Vec<String>,
    dropped: Vec<Rule>,
    hashed: Vec<Rule>,
    key: Vec<u8>,
}

/// Rule for the fields of one path, and whether it has matched any. Copies of a redaction share this.
#[derive(Debug, Clone)]
struct Rule {
    path: Path,
    has_matched: Arc<AtomicBool>,
}

impl Rule {
    fn new(path: Path) -> Self {
        Self { path, has_matched: Arc::default() }
    }

    fn matches(&self, steps: &[Step<'_>]) -> bool {
        let matches = self.path.matches(steps);
        if matches {
            self.has_matched.store(true, Ordering::Relaxed);
        }
        matches
    }
}

// The key is a secret.
impl std::fmt::Debug for Redaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redaction")
            .field("keeps_credentials", &self.keeps_credentials)
            .field("metadata", &self.metadata)
            .field("dropped", &self.dropped)
            .field("hashed", &self.hashed)
            .finish_non_exhaustive()
    }
}

/// Effect of a rule on a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Keep,
    Drop,
    Hash,
}

impl Redaction {
    /// Removes credentials only.
    pub fn new() -> Self {
        Self::default()
    }

    /// Records credentials. Any reader of the recording can then use them.
    #[must_use]
    pub fn keep_credentials(mut self) -> Self {
        self.keeps_credentials = true;
        self
    }

    /// Removes the value of this metadata. Case does not matter.
    #[must_use]
    pub fn drop_metadata(mut self, name: &str) -> Self {
        self.metadata.push(name.to_ascii_lowercase());
        self
    }

    /// Removes a field of requests and responses.
    #[must_use]
    pub fn drop_field(mut self, path: Path) -> Self {
        self.dropped.push(Rule::new(path));
        self
    }

    /// Replaces a text, bytes or a whole number by its HMAC-SHA-256, shortened, so that equal values stay equal. Other
    /// values are removed. All fields have one key, that of the last call.
    ///
    /// If the schema of the method is known, its types decide, and equal values have the same hash in every format. If not,
    /// a value is hashed as its format writes it. ProtoJSON writes 64-bit integers, bytes and enums as texts, so that
    /// their hashes there differ from those in MessagePack.
    #[must_use]
    pub fn hash_field(mut self, path: Path, key: &[u8]) -> Self {
        self.hashed.push(Rule::new(path));
        self.key = key.to_vec();
        self
    }

    /// Applies the rules to a call. `schema`: the method's messages, if they are declared.
    pub fn apply(&self, call: &mut Call, schema: Option<(&schema::Message, &schema::Message)>) {
        self.redact_fields(&mut call.metadata);
        if let Some(outcome) = &mut call.outcome {
            self.redact_fields(&mut outcome.metadata);
            self.redact_fields(&mut outcome.trailers);
        }
        if self.dropped.is_empty() && self.hashed.is_empty() {
            return;
        }
        if let Some(request) = &mut call.request {
            self.redact_message(request, schema.map(|(input, _)| input));
        }
        call.attachment = Bytes::new();
        if let Some(outcome) = &mut call.outcome {
            outcome.attachment = Bytes::new();
            if let Some(response) = &mut outcome.response {
                self.redact_message(response, schema.map(|(_, output)| output));
            }
            // Texts and details of failures often repeat the argument.
            if let Some(failure) = &mut outcome.failure {
                failure.message.clear();
                failure.details = Bytes::new();
            }
        }
        for event in &mut call.events {
            event.message = Bytes::new();
        }
    }

    /// Paths that no field of a message has had so far, in this redaction or a copy of it: they may be misspelled.
    pub fn unmatched(&self) -> impl Iterator<Item = &Path> {
        let rules = self.dropped.iter().chain(&self.hashed);
        rules.filter(|rule| !rule.has_matched.load(Ordering::Relaxed)).map(|rule| &rule.path)
    }

    fn redact_fields(&self, fields: &mut [Field]) {
        for field in fields {
            let name = field.name.to_ascii_lowercase();
            if self.metadata.contains(&name) || !self.keeps_credentials && is_credential(&name) {
                (field.value, field.removed) = (Bytes::new(), true);
            }
        }
    }

    fn redact_message(&self, message: &mut Message, schema: Option<&schema::Message>) {
        if message.body.is_empty() {
            return;
        }
        let declared = schema.map(|schema| Declaration::of_message(schema, message.positional));
        let redacted = match (message.format, schema) {
            (Some(Format::Protobuf), Some(schema)) => protobuf::redact(self, schema, &message.body),
            (Some(Format::Json(_)), _) => json::redact(self, declared, &message.body),
            (Some(Format::MessagePack | Format::MessagePackArray), _) => {
                msgpack::redact(self, declared, &message.body)
            }
            _ => None,
        };
        match redacted {
            Some(bytes) => {
                message.length = message.body.len() as u64;
                message.body = bytes.into();
            }
            None => message.omit("it cannot be decoded, and fields are to be removed"),
        }
    }

    fn action(&self, steps: &[Step<'_>]) -> Action {
        let any = |rules: &[Rule]| rules.iter().any(|rule| rule.matches(steps));
        match () {
            () if any(&self.dropped) => Action::Drop,
            () if any(&self.hashed) => Action::Hash,
            () => Action::Keep,
        }
    }

    /// Whether a rule applies to a field that the format omits: one of the steps to a member, except the last.
    fn hides_omitted(&self, steps: &[Step<'_>], more: &[Step<'_>]) -> bool {
        (1..more.len()).any(|count| self.action(&[steps, &more[..count]].concat()) != Action::Keep)
    }

    /// Whether a part of a message stays whose content is unknown: no rule may apply to it, or inside.
    fn keeps_opaque(&self, steps: &[Step<'_>]) -> bool {
        let mut rules = self.dropped.iter().chain(&self.hashed);
        self.action(steps) == Action::Keep && !rules.any(|rule| rule.path.reaches_below(steps))
    }

    /// Whether a rule names an element of a list by its position.
    fn names_positions(&self) -> bool {
        self.dropped.iter().chain(&self.hashed).any(|rule| rule.path.has_position())
    }

    fn digest(&self, value: &[u8]) -> [u8; 32] {
        // HMAC takes keys of any length.
        let Ok(mut mac) = <Hmac<Sha256> as KeyInit>::new_from_slice(&self.key) else { return [0; 32] };
        mac.update(value);
        mac.finalize().into_bytes().into()
    }

    /// Replaces a text: 32 hexadecimal digits.
    fn digest_text(&self, value: &[u8]) -> String {
        self.digest(value).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Replaces a whole number by one that every integer type can hold.
    fn digest_number(&self, value: i128) -> u32 {
        let [a, b, c, d, ..] = self.digest(value.to_string().as_bytes());
        u32::from_be_bytes([a, b, c, d]) >> 1
    }
}

/// Whether metadata of this name, in lower case, is a credential.
pub fn is_credential(name: &str) -> bool {
    let name = name.trim_start_matches(['_', ':']);
    let plain = name.strip_suffix("-bin").unwrap_or(name);
    CREDENTIALS.contains(&plain)
        || ["token", "secret", "password", "api-key", "api_key", "apikey", "-key", "_key"]
            .iter()
            .any(|end| plain.ends_with(end))
}

/// `auth` is that of rpcx, whose metadata is called `__AUTH`.
const CREDENTIALS: [&str; 7] = [
    "auth",
    "authorization",
    "proxy-authorization",
    "cookie",
    "set-cookie",
    "x-forwarded-client-cert",
    "x-amz-security-token",
];

#[cfg(test)]
mod tests {
    use polyrpc_core::Json;
    use polyrpc_payload::schema::testing::pool;
    use polyrpc_payload::transcode;

    use super::*;
    use crate::call::{Failure, Outcome};
    use crate::value::Value;

    fn redaction() -> Redaction {
        Redaction::new()
            .drop_field("user.password".parse().unwrap())
            .drop_field("cards".parse().unwrap())
            .hash_field("user.email".parse().unwrap(), b"key")
            .hash_field("id".parse().unwrap(), b"key")
            .hash_field("notes.b".parse().unwrap(), b"key")
    }

    const JSON: &str = r#"{"user":{"name":"Ann","password":"pw","email":"a@b.c"},"id":7,"cards":[1,2],"notes":{"a":"x","b":"y"}}"#;

    const PROTO: &str = r#"
        syntax = "proto3";
        message Request {
          message User { string name = 1; string password = 2; string email = 3; }
          User user = 1;
          int64 id = 2;
          repeated int32 cards = 3;
          map<string, string> notes = 4;
        }
    "#;

    fn call(format: Format, body: impl Into<Bytes>) -> Call {
        let body: Bytes = body.into();
        Call {
            request: Some(Message::new(format, body.clone())),
            attachment: Bytes::from_static(b"attached"),
            metadata: vec![field("Authorization", "Bearer x"), field("__AUTH", "t"), field("trace", "1")],
            outcome: Some(Outcome {
                response: Some(Message::new(format, body)),
                trailers: vec![field("session-token", "x")],
                failure: Some(Failure { message: "a@b.c is wrong".into(), ..Failure::default() }),
                ..Outcome::default()
            }),
            ..Call::default()
        }
    }

    fn field(name: &str, value: &'static str) -> Field {
        Field { name: name.to_owned(), value: Bytes::from_static(value.as_bytes()), removed: false }
    }

    #[test]
    fn credentials_are_removed_and_other_metadata_are_kept() {
        let mut plain = call(Format::Raw, "body");
        Redaction::new().apply(&mut plain, None);
        let kept: Vec<_> = plain.metadata.iter().map(|field| field.removed).collect();
        assert_eq!(kept, [true, true, false]);
        assert!(plain.outcome.as_ref().unwrap().trailers[0].removed);
        assert_eq!(
            (&plain.request.as_ref().unwrap().body[..], &plain.attachment[..]),
            (&b"body"[..], &b"attached"[..])
        );
        let mut kept = call(Format::Raw, "body");
        Redaction::new().keep_credentials().drop_metadata("TRACE").apply(&mut kept, None);
        assert_eq!(kept.metadata.iter().map(|field| field.removed).collect::<Vec<_>>(), [false, false, true]);
    }

    #[test]
    fn fields_are_removed_from_every_format_that_can_be_decoded() {
        let pool = pool(PROTO);
        let message = pool.message("Request").unwrap();
        let json = Format::Json(Json::Brpc);
        let bodies = [Format::Protobuf, Format::MessagePack, json].map(|format| {
            let protobuf = transcode::to_protobuf(&message, json, JSON.as_bytes()).unwrap();
            (format, transcode::from_protobuf(&message, format, &protobuf).unwrap())
        });
        let mut seen = Vec::new();
        for (format, body) in bodies {
            let mut redacted = call(format, body);
            redaction().apply(&mut redacted, Some((&message, &message)));
            assert!(redacted.attachment.is_empty());
            let outcome = redacted.outcome.unwrap();
            assert_eq!(outcome.failure.unwrap().message, "");
            for message_of in [redacted.request.unwrap(), outcome.response.unwrap()] {
                assert!(message_of.length > 0 && message_of.omitted.is_empty(), "{format:?}");
                let schema = (format == Format::Protobuf).then_some(&message);
                let tree = Value::decode(format, &message_of.body, schema).unwrap().to_json();
                assert_eq!(tree["user"]["name"], "Ann", "{format:?}");
                assert!(tree["user"].get("password").is_none_or(serde_json::Value::is_null), "{tree}");
                assert!(tree.get("cards").is_none_or(serde_json::Value::is_null), "{tree}");
                assert_eq!(tree["notes"]["a"], "x");
                seen.push(
                    [&tree["user"]["email"], &tree["id"], &tree["notes"]["b"]].map(ToString::to_string),
                );
            }
        }
        assert!(seen.iter().all(|one| *one == seen[0]), "{seen:?}");
        assert!(seen[0][0].len() == 34 && seen[0][1] != "7" && seen[0][2] != "\"y\"", "{seen:?}");
    }

    #[test]
    fn negative_numbers_of_every_type_have_the_hash_of_other_formats() {
        let json = Format::Json(Json::Brpc);
        for kind in ["int32", "int64", "sint32", "sint64", "sfixed32", "sfixed64"] {
            let pool = pool(&format!(r#"syntax = "proto3"; message Request {{ {kind} id = 1; }}"#));
            let message = pool.message("Request").unwrap();
            let protobuf = transcode::to_protobuf(&message, json, br#"{"id":-5}"#).unwrap();
            let hashes = [json, Format::MessagePack, Format::Protobuf].map(|format| {
                let body = transcode::from_protobuf(&message, format, &protobuf).unwrap();
                let mut redacted = call(format, body);
                let rules = Redaction::new().hash_field("id".parse().unwrap(), b"key");
                rules.apply(&mut redacted, Some((&message, &message)));
                let body = redacted.request.unwrap().body;
                let schema = (format == Format::Protobuf).then_some(&message);
                Value::decode(format, &body, schema).unwrap().to_json()["id"].clone()
            });
            assert!(
                hashes[0].is_u64() && hashes[1] == hashes[0] && hashes[2] == hashes[0],
                "{kind}: {hashes:?}"
            );
        }
    }

    /// Translates ProtoJSON to every format, and returns what the rules leave of each message.
    fn redact_in_every_format(
        rules: &Redaction,
        message: &schema::Message,
        json: &str,
    ) -> Vec<serde_json::Value> {
        let protobuf = transcode::to_protobuf(message, Format::Json(Json::Proto3), json.as_bytes()).unwrap();
        let json = [Json::Proto3, Json::Brpc, Json::Go].map(Format::Json);
        let formats = [Format::Protobuf, Format::MessagePack].into_iter().chain(json);
        let redacted = formats.map(|format| {
            let body = transcode::from_protobuf(message, format, &protobuf).unwrap();
            let mut redacted = call(format, body);
            rules.apply(&mut redacted, Some((message, message)));
            Value::decode(format, &redacted.request.unwrap().body, Some(message)).unwrap().to_json()
        });
        redacted.collect()
    }

    #[test]
    fn values_of_a_declared_type_have_the_same_hash_in_every_format() {
        let rules = Redaction::new().hash_field("**.secret_id".parse().unwrap(), b"key");
        for (kind, value) in [
            ("int32", "7"),
            ("int64", "\"9007199254740993\""),
            ("int64", "-5"),
            ("uint64", "\"18446744073709551615\""),
            ("sint64", "\"-9007199254740993\""),
            ("fixed64", "\"18446744073709551615\""),
            ("sfixed64", "-7"),
            ("string", "\"7\""),
            ("bytes", "\"+/8=\""),
        ] {
            let pool = pool(&format!(
                r#"syntax = "proto3";
                message Inner {{ {kind} secret_id = 1; }}
                message Request {{ Inner one = 1; repeated Inner list = 2; map<string, Inner> entries = 3; }}"#
            ));
            let message = pool.message("Request").unwrap();
            let inner = format!(r#"{{"secretId":{value}}}"#);
            let json = format!(r#"{{"one":{inner},"list":[{inner}],"entries":{{"a":{inner}}}}}"#);
            let trees = redact_in_every_format(&rules, &message, &json);
            assert!(trees.iter().all(|tree| *tree == trees[0]), "{kind} {value}: {trees:?}");
            let tree = &trees[0];
            let hash = &tree["one"]["secret_id"];
            let shown = hash.to_string();
            assert!(!hash.is_null() && shown != value.replace('"', ""), "{kind} {value}: {tree}");
            assert_eq!((&tree["list"][0]["secret_id"], &tree["entries"]["a"]["secret_id"]), (hash, hash));
        }
    }

    #[test]
    fn hash_does_not_depend_on_how_canonical_json_writes_a_value() {
        let pool = pool(r#"syntax = "proto3"; message Request { int64 id = 1; bytes raw = 2; }"#);
        let message = pool.message("Request").unwrap();
        let rules = Redaction::new().hash_field("*".parse().unwrap(), b"key");
        let format = Format::Json(Json::Proto3);
        let redact = |body: &'static str| {
            let mut redacted = call(format, body);
            rules.apply(&mut redacted, Some((&message, &message)));
            Value::decode(format, &redacted.request.unwrap().body, Some(&message)).unwrap()
        };
        let plain = redact(r#"{"id":7,"raw":"+/8="}"#);
        for same in
            [r#"{"id":"7","raw":"-_8"}"#, r#"{"id":7.0,"raw":"+/8"}"#, r#"{"id":"70e-1","raw":"-_8="}"#]
        {
            assert_eq!(redact(same), plain, "{same}");
        }
        // Values of other types than declared are removed.
        assert_eq!(redact(r#"{"id":"seven","raw":5}"#), Value::Map(Vec::new()));
    }

    #[test]
    fn values_that_are_no_text_bytes_or_whole_number_by_their_declaration_are_removed() {
        let pool = pool(
            r#"syntax = "proto3";
            import "google/protobuf/timestamp.proto";
            message Request {
              enum State { NEW = 0; PAID = 1; }
              State state = 1;
              double price = 2;
              google.protobuf.Timestamp at = 3;
              string name = 4;
            }"#,
        );
        let message = pool.message("Request").unwrap();
        let mut rules = Redaction::new();
        for path in ["state", "price", "at"] {
            rules = rules.hash_field(path.parse().unwrap(), b"key");
        }
        let json = r#"{"state":"PAID","price":5,"at":"2020-01-01T00:00:00Z","name":"a"}"#;
        for tree in redact_in_every_format(&rules, &message, json) {
            assert_eq!(tree["name"], "a");
            assert!(["state", "price", "at"].iter().all(|name| tree[name].is_null()), "{tree}");
        }
    }

    #[test]
    fn entries_of_maps_are_removed_by_keys_of_every_type() {
        let ones = [&b"\x08"[..], &[0xff; 9], b"\x01"].concat();
        for (kind, encoded, key) in [
            ("int32", &b"\x08\x05"[..], "5"),
            ("int32", &ones[..], "-1"),
            ("int32", b"\x08\xff\xff\xff\xff\x0f", "-1"),
            ("int64", &ones[..], "-1"),
            ("uint32", b"\x08\xff\xff\xff\xff\x0f", "4294967295"),
            ("uint64", &ones[..], "18446744073709551615"),
            ("sint32", b"\x08\x01", "-1"),
            ("sint64", b"\x08\x03", "-2"),
            ("fixed32", b"\x0d\x05\0\0\0", "5"),
            ("fixed64", b"\x09\x05\0\0\0\0\0\0\0", "5"),
            ("sfixed32", b"\x0d\xff\xff\xff\xff", "-1"),
            ("sfixed64", b"\x09\xff\xff\xff\xff\xff\xff\xff\xff", "-1"),
            ("bool", b"\x08\x01", "true"),
            ("bool", b"\x08\0", "false"),
            ("string", b"\x0a\x01a", "a"),
            // A key that is the default may be left out.
            ("int32", b"", "0"),
            ("sint64", b"", "0"),
            ("fixed32", b"", "0"),
            ("sfixed64", b"", "0"),
            ("bool", b"", "false"),
        ] {
            let pool =
                pool(&format!(r#"syntax = "proto3"; message Request {{ map<{kind}, string> m = 5; }}"#));
            let message = pool.message("Request").unwrap();
            let entry = [encoded, b"\x12\x06secret"].concat();
            let body = [&[0x2a, entry.len() as u8][..], &entry[..]].concat();
            let redact = |path: &str| {
                let mut redacted = call(Format::Protobuf, body.clone());
                let rules = Redaction::new().drop_field(path.parse().unwrap());
                rules.apply(&mut redacted, Some((&message, &message)));
                let request = redacted.request.unwrap();
                assert_eq!(request.omitted, "", "{kind} {path}");
                request.body
            };
            assert_eq!(redact(&format!("m.{key}")), "", "{kind} {key}");
            assert_eq!(redact("m.7"), body, "{kind} {key}");
        }
    }

    #[test]
    fn values_of_another_wire_type_than_declared_are_removed_if_there_is_a_rule() {
        let pool = pool(PROTO);
        let message = pool.message("Request").unwrap();
        for (path, body, want) in [
            // In place of the number a message, whose fields a path may name.
            ("**.password", &b"\x12\x06secret"[..], &b""[..]),
            ("user.password", b"\x0a\x04\x12\x02pw", b"\x0a\x00"),
            ("user.password", b"\x0a\x09\x11\x01\x02\x03\x04\x05\x06\x07\x08", b"\x0a\x00"),
            ("id", b"\x15\x01\x02\x03\x04", b""),
            // It is no element of the list.
            ("cards.1", b"\x1d\x09\0\0\0\x18\x05\x18\x06", b"\x18\x05"),
            // The key of a map as a number: the entry may be the one that the path names.
            ("notes.5", b"\x22\x0a\x08\x05\x12\x06secret", b""),
            ("notes.a", b"\x22\x0a\x08\x05\x12\x06secret", b""),
            // A map's value as a number.
            ("notes.b", b"\x22\x05\x0a\x01a\x10\x05", b"\x22\x03\x0a\x01a"),
        ] {
            let mut redacted = call(Format::Protobuf, body);
            let rules = Redaction::new().drop_field(path.parse().unwrap());
            rules.apply(&mut redacted, Some((&message, &message)));
            let request = redacted.request.unwrap();
            assert_eq!((&request.body[..], request.omitted.as_str()), (want, ""), "{path} {body:x?}");
        }
    }

    #[test]
    fn elements_of_packed_lists_count_in_positions() {
        let pool = pool(PROTO);
        let message = pool.message("Request").unwrap();
        // Two elements, the second one of two bytes; a third one by itself; two more.
        let body = b"\x1a\x03\x05\x80\x01\x18\x07\x1a\x02\x08\x09";
        for (path, want) in [
            ("cards.1", &b"\x18\x07\x1a\x02\x08\x09"[..]),
            ("cards.2", b"\x1a\x03\x05\x80\x01\x1a\x02\x08\x09"),
            ("cards.4", b"\x1a\x03\x05\x80\x01\x18\x07"),
            ("cards.5", &body[..]),
        ] {
            let mut redacted = call(Format::Protobuf, &body[..]);
            let rules = Redaction::new().drop_field(path.parse().unwrap());
            rules.apply(&mut redacted, Some((&message, &message)));
            assert_eq!(redacted.request.unwrap().body, want, "{path}");
        }
    }

    #[test]
    fn entry_of_a_messagepack_map_is_removed_by_a_boolean_key() {
        let mut redacted = call(Format::MessagePack, &b"\x81\xa1m\x82\xc3\xa1x\xc2\xa1y"[..]);
        Redaction::new().drop_field("m.true".parse().unwrap()).apply(&mut redacted, None);
        let body = redacted.request.unwrap().body;
        let tree = Value::decode(Format::MessagePack, &body, None).unwrap();
        assert_eq!(tree.to_string(), r#"{"m":{"true":null,"false":"y"}}"#);
    }

    #[test]
    fn rule_that_matched_nothing_is_known_to_every_copy() {
        let paths = |redaction: &Redaction| redaction.unmatched().map(Path::to_string).collect::<Vec<_>>();
        let rules = redaction().drop_field("Request.id".parse().unwrap());
        assert_eq!(paths(&rules).len(), 6);
        let copies = [rules.clone()];
        copies[0].apply(&mut call(Format::Json(Json::Brpc), JSON), None);
        assert_eq!(paths(&rules), ["Request.id"]);
    }

    #[test]
    fn message_that_cannot_be_decoded_loses_its_body() {
        for (format, body) in [
            (Format::Protobuf, &b"\x0a\x01x"[..]),
            (Format::Gob, b"x"),
            (Format::Raw, b"pw"),
            (Format::Json(Json::Go), b"{\"user\":"),
            (Format::MessagePack, b"\x82\xa1"),
        ] {
            let mut lost = call(format, body);
            redaction().apply(&mut lost, None);
            let request = lost.request.unwrap();
            assert!(request.body.is_empty() && !request.omitted.is_empty(), "{format:?}");
            assert_eq!(request.length, body.len() as u64);
        }
    }

    #[test]
    fn undeclared_fields_are_removed_if_there_is_a_rule() {
        let pool = pool(PROTO);
        let message = pool.message("Request").unwrap();
        let mut newer = call(Format::Protobuf, &b"\x10\x07\x7a\x06secret"[..]);
        redaction().apply(&mut newer, Some((&message, &message)));
        let body = newer.request.unwrap().body;
        assert!(!body.windows(6).any(|part| part == b"secret"), "{body:?}");
    }

    #[test]
    fn undeclared_members_are_removed_if_there_is_a_rule_and_a_schema() {
        let pool = pool(PROTO);
        let message = pool.message("Request").unwrap();
        let json = br#"{"id":1,"newer":{"secret":"x"},"user":{"name":{"secret":"x"},"more":"x"},"cards":{"secret":"x"},"notes":{"a":"y"}}"#;
        let tree: serde_json::Value = serde_json::from_slice(json).unwrap();
        let packed = to_msgpack(&tree);
        for (format, body) in [(Format::Json(Json::Brpc), &json[..]), (Format::MessagePack, &packed)] {
            let redact = |schema: Option<(&schema::Message, &schema::Message)>| {
                let mut redacted = call(format, body.to_vec());
                let rules = Redaction::new().drop_field("user.password".parse().unwrap());
                rules.apply(&mut redacted, schema);
                redacted.request.unwrap().body
            };
            let with_schema = redact(Some((&message, &message)));
            let shown = Value::decode(format, &with_schema, None).unwrap().to_string();
            assert!(!shown.contains('x') && shown.contains("\"a\":\"y\""), "{format:?} {shown}");
            let shown = Value::decode(format, &redact(None), None).unwrap().to_json();
            assert_eq!(shown, tree, "{format:?}");
        }
    }

    /// Encodes objects, texts and small numbers.
    fn to_msgpack(value: &serde_json::Value) -> Vec<u8> {
        use polyrpc_payload::msgpack::Writer;
        let mut out = Vec::new();
        match value {
            serde_json::Value::Object(members) => {
                Writer::new(&mut out).map(members.len() as u32);
                for (name, member) in members {
                    Writer::new(&mut out).str(name);
                    out.extend(to_msgpack(member));
                }
            }
            serde_json::Value::String(text) => Writer::new(&mut out).str(text),
            other => Writer::new(&mut out).unsigned(other.as_u64().unwrap()),
        }
        out
    }

    const WELL_KNOWN: &str = r#"
        syntax = "proto3";
        import "google/protobuf/any.proto";
        import "google/protobuf/struct.proto";
        message Login { string name = 1; string password = 2; google.protobuf.Any more = 3; }
        message Request {
          google.protobuf.Any detail = 1;
          google.protobuf.Struct meta = 2;
          int32 id = 3;
          repeated google.protobuf.Any details = 4;
        }
    "#;

    /// Redacts ProtoJSON in every format, and returns the redacted messages in ProtoJSON.
    fn redact_well_known(rules: &Redaction, json: &str) -> Vec<(Format, serde_json::Value)> {
        let pool = pool(WELL_KNOWN);
        let message = pool.message("Request").unwrap();
        let canonical = Format::Json(Json::Proto3);
        let protobuf = transcode::to_protobuf(&message, canonical, json.as_bytes()).unwrap();
        let json = [Json::Proto3, Json::Brpc, Json::Go].map(Format::Json);
        let formats = [Format::Protobuf, Format::MessagePack].into_iter().chain(json);
        let redacted = formats.map(|format| {
            let mut call = call(format, transcode::from_protobuf(&message, format, &protobuf).unwrap());
            rules.apply(&mut call, Some((&message, &message)));
            let body = call.request.unwrap().body;
            let protobuf = match format {
                // The nil in place of a removed value is no `google.protobuf.Value`.
                Format::MessagePack => {
                    let tree = strip_null(Value::decode(format, &body, None).unwrap().to_json());
                    transcode::to_protobuf(&message, Format::Json(Json::Go), tree.to_string().as_bytes())
                }
                format => transcode::to_protobuf(&message, format, &body),
            };
            let json = transcode::from_protobuf(&message, canonical, &protobuf.unwrap()).unwrap();
            (format, serde_json::from_slice(&json).unwrap())
        });
        redacted.collect()
    }

    #[test]
    fn rules_apply_to_the_message_in_an_any() {
        let login = r#"{"@type":"x/Login","name":"Ann","password":"pw","more":{"@type":"x/Login","name":"Bob","password":"pw"}}"#;
        let json = format!(r#"{{"detail":{login},"id":7,"details":[{login}]}}"#);
        for path in ["**.password", "**.value.password"] {
            let rules = Redaction::new().drop_field(path.parse().unwrap());
            for (format, tree) in redact_well_known(&rules, &json) {
                for any in [&tree["detail"], &tree["details"][0]] {
                    assert_eq!(
                        (&any["name"], &any["more"]["name"]),
                        (&"Ann".into(), &"Bob".into()),
                        "{format:?}"
                    );
                }
                assert!(!tree.to_string().contains("pw"), "{path} {format:?} {tree}");
            }
        }
        let rules = Redaction::new().drop_field("detail.value".parse().unwrap());
        for (format, tree) in redact_well_known(&rules, &json) {
            assert!(!tree["detail"].to_string().contains("pw"), "{format:?} {tree}");
            assert_eq!(tree["details"][0]["password"], "pw", "{format:?} {tree}");
        }
        for path in ["detail.password", "detail.value.password"] {
            let rules = Redaction::new().drop_field(path.parse().unwrap());
            for (format, tree) in redact_well_known(&rules, &json) {
                assert!(
                    tree["detail"].get("password").is_none_or(|left| left == ""),
                    "{path} {format:?} {tree}"
                );
                assert_eq!(tree["detail"]["more"]["password"], "pw", "{path} {format:?} {tree}");
                assert_eq!(tree["details"][0]["password"], "pw", "{path} {format:?} {tree}");
            }
        }
    }

    #[test]
    fn any_of_an_unknown_type_is_removed_if_a_rule_may_apply_in_it() {
        let pool = pool(WELL_KNOWN);
        let message = pool.message("Request").unwrap();
        let bodies = [
            (Format::Protobuf, &b"\x0a\x10\x0a\x06x/Gone\x12\x06secret"[..]),
            // Two types, and one behind the value.
            (Format::Protobuf, b"\x0a\x19\x0a\x07x/Login\x12\x06secret\x0a\x06x/Gone"),
            (Format::Protobuf, b"\x0a\x10\x12\x06secret\x0a\x06x/Gone"),
            (Format::MessagePack, b"\x81\xa6detail\x82\xa8type_url\xa6x/Gone\xa5value\xc4\x06secret"),
            (Format::Json(Json::Brpc), br#"{"detail":{"type_url":"x/Gone","value":"secretAA"}}"#),
            (Format::Json(Json::Go), br#"{"detail":{"value":"secretAA","type_url":"x/Gone"}}"#),
            (Format::Json(Json::Proto3), br#"{"detail":{"pw":"secret","@type":"x/Gone"}}"#),
        ];
        for (format, body) in bodies {
            for (path, stays) in
                [("**.password", false), ("detail.password", false), ("detail.value", false), ("id", true)]
            {
                let mut redacted = call(format, body);
                let rules = Redaction::new().drop_field(path.parse().unwrap());
                rules.apply(&mut redacted, Some((&message, &message)));
                let request = redacted.request.unwrap();
                let has_secret = request.body.windows(6).any(|part| part == b"secret");
                assert_eq!((has_secret, request.omitted.as_str()), (stays, ""), "{path} {format:?}");
            }
        }
    }

    #[test]
    fn paths_in_a_struct_are_those_of_any_format() {
        let json = r#"{"meta":{"x":"pw","n":1.5,"in":{"x":"pw","y":["pw",{"z":"pw"}]}},"id":7}"#;
        for (paths, want) in [
            (["meta.x", "meta.fields.x"], r#"{"n":1.5,"in":{"x":"pw","y":["pw",{"z":"pw"}]}}"#),
            (["meta.*", "meta.fields"], "{}"),
            (["meta.in", "meta.fields.in"], r#"{"x":"pw","n":1.5}"#),
            (
                ["meta.in.x", "meta.fields.in.struct_value.fields.x"],
                r#"{"x":"pw","n":1.5,"in":{"y":["pw",{"z":"pw"}]}}"#,
            ),
            (
                [
                    "meta.in.y.z",
                    "meta.fields.in.struct_value.fields.y.list_value.values.struct_value.fields.z",
                ],
                r#"{"x":"pw","n":1.5,"in":{"x":"pw","y":["pw",{}]}}"#,
            ),
        ] {
            // Formats differ in how they write what was removed, so that only the rest is compared.
            let want = strip_null(serde_json::from_str(want).unwrap());
            for path in paths {
                let rules = Redaction::new().drop_field(path.parse().unwrap());
                for (format, tree) in redact_well_known(&rules, json) {
                    assert_eq!(strip_null(tree["meta"].clone()), want, "{path} {format:?}");
                    assert_eq!(tree["id"], 7, "{path} {format:?}");
                }
            }
        }
    }

    /// Removes null from objects.
    fn strip_null(value: serde_json::Value) -> serde_json::Value {
        use serde_json::Value as Json;
        match value {
            Json::Object(members) => {
                let kept = members.into_iter().filter(|(_, member)| !member.is_null());
                Json::Object(kept.map(|(name, member)| (name, strip_null(member))).collect())
            }
            Json::Array(items) => Json::Array(items.into_iter().map(strip_null).collect()),
            other => other,
        }
    }

    #[test]
    fn texts_in_a_struct_have_the_same_hash_in_every_format() {
        let rules = Redaction::new().hash_field("meta.x".parse().unwrap(), b"key");
        let trees = redact_well_known(&rules, r#"{"meta":{"x":"pw","y":"z"}}"#);
        let hash = trees[0].1["meta"]["x"].as_str().unwrap();
        assert_eq!(hash.len(), 32);
        for (format, tree) in &trees {
            assert_eq!(*tree, trees[0].1, "{format:?}");
        }
    }
}
