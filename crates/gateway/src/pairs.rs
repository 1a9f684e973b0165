//! Translators of the methods that were called.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use polyrpc::layer::StreamType;
use polyrpc::{Format, Json};
use polyrpc_transform::{Direction, Impossible, OnLoss, Options, Schemas, Translator, Types};

/// Translators by method and formats.
#[derive(Debug, Default)]
pub(crate) struct Pairs(RwLock<HashMap<Key, Arc<Pair>>>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    callers: String,
    target: String,
    from: Format,
    to: Format,
    numbered: bool,
}

/// What is known of a method for callers of one format.
#[derive(Debug)]
pub(crate) struct Pair {
    /// The declared streams; `None` if nothing declares the method.
    pub(crate) shape: Option<StreamType>,
    /// The method's name with its number, for protocols that need it.
    pub(crate) numbered: Option<String>,
    pub(crate) request: Result<Translator, Impossible>,
    pub(crate) response: Result<Translator, Impossible>,
    /// Translates a response to JSON, to compare it.
    pub(crate) readable: Option<Translator>,
    /// Translates JSON to a response for the caller, for values that an upstream publishes.
    pub(crate) published: Result<Translator, Impossible>,
    /// The only field of the response.
    pub(crate) sole_field: Option<String>,
    /// Whether a `.proto` says that the method has no side effects.
    pub(crate) is_safe: bool,
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
            shape: schema.proto.as_ref().map(|types| types.shape),
            numbered: schema
                .flatbuffers
                .as_ref()
                .filter(|_| numbered)
                .map(|method| method.numbered().to_owned()),
            request: translator(Direction::Request, from, to),
            response: translator(Direction::Response, to, from),
            readable: Translator::new(Direction::Response, to, READABLE, &schema, COUNTING).ok(),
            published: translator(Direction::Response, READABLE, from),
            sole_field: schema.proto.as_ref().and_then(sole_field),
            is_safe: schemas.has_no_side_effects(target) || schemas.has_no_side_effects(callers),
        }
    }

    /// Whether messages pass unread in both directions.
    pub(crate) fn is_identity(&self) -> bool {
        let passes = |one: &Result<Translator, Impossible>| one.as_ref().is_ok_and(Translator::is_identity);
        passes(&self.request) && passes(&self.response)
    }
}

impl Pairs {
    /// Returns the translators of a method by its names for callers and for the upstream. Names come from callers, so
    /// their number is limited.
    pub(crate) fn find(
        &self,
        schemas: &Schemas,
        names: (&str, &str),
        formats: (Format, Format),
        on_loss: OnLoss,
        numbered: bool,
    ) -> Arc<Pair> {
        let key = Key {
            callers: names.0.to_owned(),
            target: names.1.to_owned(),
            from: formats.0,
            to: formats.1,
            numbered,
        };
        if let Some(known) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return known.clone();
        }
        let pair = Arc::new(Pair::new(schemas, names, formats, on_loss, numbered));
        let mut pairs = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if pairs.len() < MOST {
            pairs.insert(key, pair.clone());
        }
        pair
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

/// What one answer has and another lacks is a difference, and no failure.
const COUNTING: Options = Options { on_loss: OnLoss::Count, max_size: 64 << 20 };

/// Maximum number of remembered methods of a route.
const MOST: usize = 10_000;
