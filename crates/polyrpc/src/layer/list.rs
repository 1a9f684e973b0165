//! Layers with erased types.

use std::fmt;
use std::sync::Arc;

use polyrpc_core::Status;

use super::next::Erased;
use super::{Call, Layer, Next, Side};
use crate::call::Outcome;

/// Layers, outermost first. Most methods and clients have none, at no cost.
#[derive(Clone, Default)]
pub(crate) struct Layers(Option<Arc<[Arc<dyn Erased>]>>);

impl Layers {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Creates a list of a single layer.
    pub(crate) fn one(layer: impl Layer) -> Self {
        Self(Some(Arc::new([Arc::new(layer) as Arc<dyn Erased>])))
    }

    /// Creates a list of a single layer for this side. A layer for the other side only is an error, and fails every
    /// call that passes it.
    pub(crate) fn one_for<L: Layer>(side: Side, layer: L) -> (Self, Result<(), Status>) {
        let fits = fits(&layer, side);
        match &fits {
            Ok(()) => (Self::one(layer), fits),
            Err(status) => (Self::one(MisplacedLayer(status.clone())), fits),
        }
    }

    /// Composes these layers around `inside`.
    pub(crate) fn compose(&self, inside: &Self) -> Self {
        match (&self.0, &inside.0) {
            (None, _) => inside.clone(),
            (_, None) => self.clone(),
            (Some(outside), Some(inside)) => Self(Some(outside.iter().chain(&**inside).cloned().collect())),
        }
    }

    /// No layers.
    pub(crate) const NONE: Self = Self(None);

    pub(crate) fn as_slice(&self) -> &[Arc<dyn Erased>] {
        self.0.as_deref().unwrap_or_default()
    }
}

fn fits<L: Layer>(layer: &L, side: Side) -> Result<(), Status> {
    match layer.only_side() {
        Some(only) if only != side => {
            let name = std::any::type_name::<L>();
            Err(Status::invalid_argument(format!("{name} is a layer of a {only}, not of a {side}")))
        }
        _ => Ok(()),
    }
}

/// Placeholder for a layer of the other side; rejects all calls.
struct MisplacedLayer(Status);

impl Layer for MisplacedLayer {
    async fn call(self: Arc<Self>, _: Call, _: Next) -> Outcome {
        Outcome::failed(self.0.clone())
    }
}

/// The first layers are outside of the following ones.
impl<'a> FromIterator<&'a Self> for Layers {
    fn from_iter<I: IntoIterator<Item = &'a Self>>(layers: I) -> Self {
        layers.into_iter().fold(Self::NONE, |outside, inside| outside.compose(inside))
    }
}

impl fmt::Debug for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Layers").field(&self.as_slice().len()).finish()
    }
}
