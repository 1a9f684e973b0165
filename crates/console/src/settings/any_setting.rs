use std::panic::Location;

/// A setting of any type.
pub(super) trait AnySetting: Send + Sync {
    fn facts(&self) -> &Facts;
    fn value(&self) -> String;
    fn default(&self) -> String;

    /// Sets a value that is written as text. Returns whether it is valid.
    fn set_text(&self, text: &str) -> bool;
}

/// Facts about a setting in addition to its value.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    pub(super) name: String,
    pub(super) description: String,
    /// Where it is defined.
    pub(super) location: &'static Location<'static>,
    /// Its value is not shown.
    pub(super) secret: bool,
}
