//! Pages that the program adds.

use std::fmt;

use serde_json::Value;

/// Content of a page that a program [adds](crate::Console::add_page): data, which is the page in JSON, and tables of
/// it.
#[derive(Debug, Clone, Default)]
pub struct PageContent {
    pub(crate) data: Value,
    pub(crate) tables: Vec<Table>,
}

#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) caption: String,
    pub(crate) columns: Vec<&'static str>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl PageContent {
    /// Creates a page with this data and no table. The data is displayed as JSON, as a `serde_json::Value` is; anything
    /// else becomes a text of JSON.
    pub fn new(json: impl fmt::Display) -> Self {
        let text = json.to_string();
        Self { data: serde_json::from_str(&text).unwrap_or(Value::String(text)), tables: Vec::new() }
    }

    /// Adds a table, which curl gets as lines of `column=value`.
    #[must_use]
    pub fn table<const N: usize>(
        mut self,
        caption: impl Into<String>,
        columns: [&'static str; N],
        rows: impl IntoIterator<Item = [String; N]>,
    ) -> Self {
        let rows = rows.into_iter().map(Vec::from).collect();
        self.tables.push(Table { caption: caption.into(), columns: columns.into(), rows });
        self
    }
}

/// Pages that only some processes have, for the menu of all pages.
#[derive(Debug, Clone, Default)]
pub(crate) struct Menu {
    /// Names of the pages that the program added.
    pub(crate) own: Vec<&'static str>,
    pub(crate) has_fleet: bool,
}

/// A page of the program.
pub(crate) struct OwnPage {
    /// The first segment of its path.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) content: Box<dyn Fn() -> PageContent + Send + Sync>,
}

impl fmt::Debug for OwnPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnPage").field("name", &self.name).finish_non_exhaustive()
    }
}
