//! A rule declared in a `.proto`: `google.api.HttpRule`.

use polyrpc_core::protobuf::{Reader, WireType};

use super::error::Error;
use super::template::Template;

/// An HTTP binding of a method.
#[derive(Debug, Clone)]
pub(super) struct Rule {
    /// HTTP method such as `GET`, or `*` for any.
    pub(super) verb: Box<str>,
    pub(super) path: Template,
    pub(super) body: Body,
    /// Field of the reply that forms the response; `None`: the whole reply.
    pub(super) response: Option<Box<str>>,
}

/// Mapping of a request's body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Body {
    /// No body; fields that are not in the path come from the query.
    None,
    /// The body holds all fields that are not in the path.
    Whole,
    /// The body holds this field; the others come from the query.
    Field(Box<str>),
}

impl Rule {
    /// Parses a serialized `HttpRule` and its additional bindings.
    pub(super) fn read_all(rule: &[u8]) -> Result<Vec<Self>, Error> {
        let raw = Raw::read(rule)?;
        let mut rules = vec![raw.rule()?];
        for binding in &raw.additional {
            let binding = Raw::read(binding)?;
            if !binding.additional.is_empty() {
                return Err(Error::new(binding.path, "an additional binding has bindings of its own"));
            }
            rules.push(binding.rule()?);
        }
        Ok(rules)
    }
}

/// Fields of an `HttpRule`.
#[derive(Default)]
struct Raw<'a> {
    verb: &'a str,
    path: &'a str,
    body: &'a str,
    response: &'a str,
    additional: Vec<&'a [u8]>,
}

impl<'a> Raw<'a> {
    fn read(rule: &'a [u8]) -> Result<Self, Error> {
        let mut raw = Self::default();
        for (number, value) in fields(rule)? {
            match number {
                2 => (raw.verb, raw.path) = ("GET", text(value)?),
                3 => (raw.verb, raw.path) = ("PUT", text(value)?),
                4 => (raw.verb, raw.path) = ("POST", text(value)?),
                5 => (raw.verb, raw.path) = ("DELETE", text(value)?),
                6 => (raw.verb, raw.path) = ("PATCH", text(value)?),
                8 => raw.custom(value)?,
                7 => raw.body = text(value)?,
                11 => raw.additional.push(value),
                12 => raw.response = text(value)?,
                _ => {}
            }
        }
        Ok(raw)
    }

    /// `CustomHttpPattern`
    fn custom(&mut self, pattern: &'a [u8]) -> Result<(), Error> {
        for (number, value) in fields(pattern)? {
            match number {
                1 => self.verb = text(value)?,
                2 => self.path = text(value)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn rule(&self) -> Result<Rule, Error> {
        if self.verb.is_empty() {
            return Err(Error::new(self.path, "the rule has no pattern"));
        }
        Ok(Rule {
            verb: self.verb.into(),
            path: Template::parse(self.path)?,
            body: match self.body {
                "" => Body::None,
                "*" => Body::Whole,
                field => Body::Field(field.into()),
            },
            response: (!self.response.is_empty()).then(|| self.response.into()),
        })
    }
}

/// Returns the length-delimited fields of a message.
fn fields(message: &[u8]) -> Result<Vec<(u32, &[u8])>, Error> {
    let broken = || Error::new("", "the rule is not protobuf");
    let mut reader = Reader::new(message);
    let mut fields = Vec::new();
    while !reader.is_empty() {
        let (number, kind) = reader.tag().ok_or_else(broken)?;
        match kind {
            WireType::Bytes => fields.push((number, reader.bytes().ok_or_else(broken)?)),
            other => reader.skip(number, other).ok_or_else(broken)?,
        }
    }
    Ok(fields)
}

fn text(bytes: &[u8]) -> Result<&str, Error> {
    std::str::from_utf8(bytes).map_err(|_| Error::new("", "the rule is not UTF-8"))
}
