//! Tables and figures of a document.

use serde::{Deserialize, Serialize};

use super::cell::Measure;
use super::published::Published;

/// A table of the document.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// Its name in this suite.
    pub id: String,
    /// Its title in the document.
    pub title: String,
    /// Names of the columns of figures.
    pub columns: Vec<String>,
    /// Names of the rows.
    pub rows: Vec<String>,
    /// The figures, row by row.
    pub entries: Vec<Entry>,
    /// Ratios that the document shows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ratios: Vec<RatioRow>,
    /// What readers should know of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Which figure: of a pair, under a case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// The pair.
    pub pair: String,
    /// The case.
    pub case: String,
    /// The figure.
    pub measure: Measure,
}

/// A figure of the table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// What it is here.
    pub key: Key,
    /// What the document has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<Published>,
    /// The pair of PolyRPC that does the same, for readers who have not the document's programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<String>,
}

/// A ratio of two figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RatioRow {
    /// Its name.
    pub name: String,
    /// The numerator.
    pub of: Key,
    /// The denominator.
    pub to: Key,
    /// The ratio of the published figures, if both have bounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<Published>,
}

/// A figure of the document: bars of one figure for some pairs under some cases.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    /// Its name in this suite.
    pub id: String,
    /// Its title.
    pub title: String,
    /// What the bars show.
    pub measure: Option<Measure>,
    /// At most four pairs.
    pub pairs: Vec<String>,
    /// The cases.
    pub cases: Vec<String>,
}
