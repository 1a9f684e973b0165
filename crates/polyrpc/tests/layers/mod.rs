//! Layers of both sides.

mod basics;
mod matrix;
mod observability;
