use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use super::any_setting::{AnySetting, Facts};
use super::registry;

/// A setting whose value is held elsewhere: functions read and change it.
pub(crate) struct Action {
    facts: Facts,
    default: String,
    value: Box<dyn Fn() -> String + Send + Sync>,
    /// Returns whether the text is a valid value.
    set: Box<dyn Fn(&str) -> bool + Send + Sync>,
}

/// A setting, listed for as long as this exists.
pub(crate) struct Listed(Arc<dyn AnySetting>);

impl Action {
    #[track_caller]
    pub(crate) fn list(
        name: &str,
        description: &str,
        value: impl Fn() -> String + Send + Sync + 'static,
        set: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Listed {
        let facts = Facts {
            name: name.to_owned(),
            description: description.to_owned(),
            location: Location::caller(),
            secret: false,
        };
        let action = Self { facts, default: value(), value: Box::new(value), set: Box::new(set) };
        let listed: Arc<dyn AnySetting> = Arc::new(action);
        registry::list(listed.clone());
        Listed(listed)
    }
}

impl AnySetting for Action {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn value(&self) -> String {
        (self.value)()
    }

    fn default(&self) -> String {
        self.default.clone()
    }

    fn set_text(&self, text: &str) -> bool {
        (self.set)(text)
    }
}

impl fmt::Debug for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Listed").field(&self.0.facts().name).finish()
    }
}
