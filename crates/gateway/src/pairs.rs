//! Translators of the methods that were called.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use polyrpc::layer::StreamType;
use polyrpc::{Format, Json};
use polyrpc_transform::{Direction, OnLoss, Options, Schemas, Translator, TranslatorError, Types};

use crate::response_size::ResponseSize;

/// Translators by method and formats.
#[derive(Debug, Default)]
pub(crate) struct Pairs(RwLock<Known>);

/// By the name for the upstream, then by the name for callers, so that a look-up copies no names. Callers choose their
/// names: several may map to one name for the upstream.
#[derive(Debug, Default)]
struct Known {
    by_names: HashMap<String, Method>,
    count: usize,
    /// How many of them are of methods that no schema declares: callers may invent their names.
    undeclared: usize,
    /// Of all methods that are not remembered.
    other_sizes: Arc<ResponseSize>,
}

/// A method of the upstream.
#[derive(Debug, Default)]
struct Method {
    by_callers_name: HashMap<String, Vec<(Key, Arc<Pair>)>>,
    response_size: Arc<ResponseSize>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Key {
    formats: (Format, Format),
    numbered: bool,
}

/// The translators of a method for callers of one format, and its properties.
#[derive(Debug)]
pub(crate) struct Pair {
    /// The declared streams; `None` if nothing declares the method.
    pub(crate) stream_type: Option<StreamType>,
    /// The method's name with its number, for protocols that need it.
    pub(crate) numbered: Option<String>,
    pub(crate) request: Result<Translator, TranslatorError>,
    pub(crate) response: Result<Translator, TranslatorError>,
    /// Translates a response to JSON, to compare it.
    pub(crate) readable: Option<Translator>,
    /// Translates JSON to a response for the caller: for values that an upstream publishes.
    pub(crate) published: Result<Translator, TranslatorError>,
    /// The only field of the response.
    pub(crate) sole_field: Option<String>,
    /// Whether a `.proto` declares that the method has no side effects.
    pub(crate) is_safe: bool,
    /// Whether a schema declares the method.
    is_declared: bool,
    /// How long the method's responses are, as callers of any format receive them.
    pub(crate) response_size: Arc<ResponseSize>,
}

impl Pair {
    pub(crate) fn new(
        schemas: &Schemas,
        (callers, target): (&str, &str),
        (from, to): (Format, Format),
        on_loss: OnLoss,
        numbered: bool,
    ) -> Self {
        let schema = schemas.renamed(callers, target, numbered);
        let options = Options { on_loss, ..Options::default() };
        let translator = |direction, from, to| Translator::new(direction, from, to, &schema, options);
        Self {
            stream_type: schema.proto.as_ref().map(|types| types.stream_type),
            numbered: schema
                .flatbuffers
                .as_ref()
                .filter(|_| numbered)
                .map(|method| method.wire_name().to_owned()),
            request: translator(Direction::Request, from, to),
            response: translator(Direction::Response, to, from),
            readable: Translator::new(Direction::Response, to, READABLE, &schema, COUNTING).ok(),
            published: translator(Direction::Response, READABLE, from),
            sole_field: schema.proto.as_ref().and_then(sole_field),
            is_declared: !schema.is_empty(),
            is_safe: schemas.has_no_side_effects(target) || schemas.has_no_side_effects(callers),
            response_size: Arc::default(),
        }
    }

    /// Whether messages are forwarded without decoding, in both directions.
    pub(crate) fn is_identity(&self) -> bool {
        let passes =
            |one: &Result<Translator, TranslatorError>| one.as_ref().is_ok_and(Translator::is_identity);
        passes(&self.request) && passes(&self.response)
    }
}

impl Pairs {
    /// Returns the translators of a method by its names for callers and for the upstream. Names come from callers, so
    /// their number and length are limited.
    pub(crate) fn find(
        &self,
        schemas: &Schemas,
        names: (&str, &str),
        formats: (Format, Format),
        on_loss: OnLoss,
        numbered: bool,
    ) -> Arc<Pair> {
        let (callers, target) = names;
        if let Some(known) =
            self.0.read().unwrap_or_else(PoisonError::into_inner).get(names, formats, numbered)
        {
            return known;
        }
        let mut pair = Pair::new(schemas, names, formats, on_loss, numbered);
        let is_long = callers.len() + target.len() > MAX_NAME_LEN;
        {
            // Without the exclusive lock, which calls of other methods would wait for.
            let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
            if is_long || known.is_full(pair.is_declared) {
                pair.response_size = known.other_sizes.clone();
                return Arc::new(pair);
            }
        }
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have inserted it meanwhile.
        if let Some(known) = known.get(names, formats, numbered) {
            return known;
        }
        known.count += 1;
        known.undeclared += usize::from(!pair.is_declared);
        let method = known.by_names.entry(target.to_owned()).or_default();
        pair.response_size = method.response_size.clone();
        let pair = Arc::new(pair);
        let pairs = method.by_callers_name.entry(callers.to_owned()).or_default();
        pairs.push((Key { formats, numbered }, pair.clone()));
        pair
    }
}

impl Known {
    /// Whether no further method is remembered.
    fn is_full(&self, is_declared: bool) -> bool {
        self.count >= MAX_METHODS || !is_declared && self.undeclared >= MAX_UNDECLARED
    }

    fn get(
        &self,
        (callers, target): (&str, &str),
        formats: (Format, Format),
        numbered: bool,
    ) -> Option<Arc<Pair>> {
        let wanted = Key { formats, numbered };
        let pairs = self.by_names.get(target)?.by_callers_name.get(callers)?;
        let (_, pair) = pairs.iter().find(|(key, _)| *key == wanted)?;
        Some(pair.clone())
    }
}

fn sole_field(types: &Types) -> Option<String> {
    match types.output.fields() {
        [sole] => Some(sole.name().to_owned()),
        _ => None,
    }
}

/// Names as declared, integers as numbers.
pub(crate) const READABLE: Format = Format::Json(Json::Brpc);

/// A part that only one of two answers has is a difference, not a failure.
const COUNTING: Options = Options { on_loss: OnLoss::Count, max_size: 64 << 20 };

/// Maximum number of remembered methods of a route.
const MAX_METHODS: usize = 10_000;

/// Maximum number of those that no schema declares: a quarter is left for declared ones.
const MAX_UNDECLARED: usize = MAX_METHODS - MAX_METHODS / 4;

/// Maximum length of both names of a remembered method together, in bytes.
const MAX_NAME_LEN: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invented_names_leave_room_for_declared_methods() {
        let pairs = Pairs::default();
        let schemas = Schemas::default();
        let formats = (Format::Protobuf, Format::Protobuf);
        for n in 0..MAX_METHODS + 10 {
            let name = format!("x.Y/{n}");
            let pair = pairs.find(&schemas, (&name, &name), formats, OnLoss::Reject, false);
            assert!(pair.is_identity(), "{n}");
        }
        let known = pairs.0.read().unwrap();
        assert_eq!((known.count, known.undeclared), (MAX_UNDECLARED, MAX_UNDECLARED));
        assert!(known.is_full(false) && !known.is_full(true));
    }
}
