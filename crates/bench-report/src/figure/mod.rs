//! Plots as SVG, without scripts and without a dependency.
//!
//! A plot is 360 units wide, the width of a phone, with text of 11 units; on larger screens it is scaled up. Colours come from
//! CSS classes, so that a page can be light or dark; lines also differ by their dashes, for print and for the colour-blind.

mod axis;
mod bars;
mod charts;
mod dots;
mod legend;
mod plot;
mod svg;
mod text;

pub use bars::{Bar, BarGroup, bars};
pub use charts::{
    Series, latency_against_rate, latency_over_time, over_time, quantile_curve, rate_over_time,
};
pub use dots::{DotRow, dots};
pub use svg::{Svg, escape};

/// Style of plots, for the page that contains them. An [`Svg::standalone`] contains it already.
pub const STYLE: &str = include_str!("plot.css");
