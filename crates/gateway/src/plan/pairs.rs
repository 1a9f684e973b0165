//! Translators of the methods that were called.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use polyrpc::Format;
use polyrpc::layer::StreamType;
use polyrpc_transform::{Direction, Impossible, OnLoss, Options, Schemas, Translator};

/// Translators by method and formats.
#[derive(Debug, Default)]
pub(crate) struct Pairs(RwLock<HashMap<Key, Arc<Pair>>>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
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
}

impl Pair {
    pub(super) fn new(
        schemas: &Schemas,
        target: &str,
        (from, to): (Format, Format),
        on_loss: OnLoss,
        numbered: bool,
    ) -> Self {
        let schema = schemas.method(target, numbered);
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
        }
    }

    /// Whether messages pass unread in both directions.
    pub(crate) fn is_identity(&self) -> bool {
        let passes = |one: &Result<Translator, Impossible>| one.as_ref().is_ok_and(Translator::is_identity);
        passes(&self.request) && passes(&self.response)
    }
}

impl Pairs {
    /// Returns the translators of a method. Names come from callers, so their number is limited.
    pub(crate) fn find(
        &self,
        schemas: &Schemas,
        target: &str,
        formats: (Format, Format),
        on_loss: OnLoss,
        numbered: bool,
    ) -> Arc<Pair> {
        let key = Key { target: target.to_owned(), from: formats.0, to: formats.1, numbered };
        if let Some(known) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return known.clone();
        }
        let pair = Arc::new(Pair::new(schemas, target, formats, on_loss, numbered));
        let mut pairs = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if pairs.len() < MOST {
            pairs.insert(key, pair.clone());
        }
        pair
    }
}

/// Maximum number of remembered methods of a route.
const MOST: usize = 10_000;
