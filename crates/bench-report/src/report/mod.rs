//! Results for readers: on a terminal, as CSV, as an HDR log, and as a page.

mod csv;
mod hdr_log;
mod html;
mod suite;
mod terminal;

pub use csv::csv;
pub use hdr_log::hdr_log;
pub use html::html;
pub use suite::{markdown_block, suite_plot};
pub use terminal::terminal;
