//! Documents that the tests compare with the code. Not in the package, which has neither documents nor examples.

mod common;
mod repository;
