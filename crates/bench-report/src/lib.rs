#![doc = include_str!("../README.md")]

pub mod figure;
pub mod format;
pub mod hdr;
pub mod model;
pub mod report;
pub mod statistics;
