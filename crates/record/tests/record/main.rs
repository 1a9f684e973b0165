//! Recordings: the container, and the layer on real servers and clients.

mod container;
#[cfg(feature = "layer")]
mod layer;
