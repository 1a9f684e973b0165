use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::any_setting::{AnySetting, Facts};
use super::registry;
use super::value::SettingValue;

/// A setting, read by the program and changed on `/flags`. It is listed for as long as it, or a clone of it, exists.
pub struct Setting<T>(Arc<StoredSetting<T>>);

/// Definition of a [`Setting`]. See [`Setting::define`].
pub struct Definition<T>(StoredSetting<T>);

pub(super) struct StoredSetting<T> {
    facts: Facts,
    bits: AtomicU64,
    default: T,
    validate: Option<Box<dyn Fn(&T) -> bool + Send + Sync>>,
}

impl<T: SettingValue> Setting<T> {
    /// Starts to define a setting: its name, its default, and its description.
    #[track_caller]
    pub fn define(name: &str, default: T, description: &str) -> Definition<T> {
        let facts = Facts {
            name: name.to_owned(),
            description: description.to_owned(),
            location: Location::caller(),
            secret: false,
        };
        Definition(StoredSetting { facts, bits: AtomicU64::new(default.to_bits()), default, validate: None })
    }

    /// Returns the value.
    #[inline]
    pub fn get(&self) -> T {
        self.0.get()
    }

    /// Sets the value, unless the validator rejects it. Returns whether it was set. The program's own changes are not
    /// recorded.
    pub fn set(&self, value: T) -> bool {
        self.0.set(value)
    }
}

impl<T: SettingValue> Definition<T> {
    /// Sets a check that new values must pass.
    #[must_use]
    pub fn validate(mut self, validate: impl Fn(&T) -> bool + Send + Sync + 'static) -> Self {
        self.0.validate = Some(Box::new(validate));
        self
    }

    /// Never shows the value on pages.
    #[must_use]
    pub fn secret(mut self) -> Self {
        self.0.facts.secret = true;
        self
    }

    /// Lists the setting. If its name is taken, the setting works but is not listed.
    #[must_use]
    pub fn register(self) -> Setting<T> {
        let stored = Arc::new(self.0);
        registry::list(stored.clone());
        Setting(stored)
    }
}

impl<T: SettingValue> StoredSetting<T> {
    fn get(&self) -> T {
        T::from_bits(self.bits.load(Ordering::Relaxed))
    }

    fn set(&self, value: T) -> bool {
        let valid = self.validate.as_ref().is_none_or(|validate| validate(&value));
        if valid {
            self.bits.store(value.to_bits(), Ordering::Relaxed);
        }
        valid
    }
}

impl<T: SettingValue> AnySetting for StoredSetting<T> {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn value(&self) -> String {
        self.get().show()
    }

    fn default(&self) -> String {
        self.default.show()
    }

    fn set_text(&self, text: &str) -> bool {
        T::parse(text).is_some_and(|value| self.set(value))
    }
}

impl<T> Clone for Setting<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: SettingValue> fmt::Debug for Setting<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = if self.0.facts.secret { "***".to_owned() } else { self.0.value() };
        f.debug_struct("Setting").field("name", &self.0.facts.name).field("value", &value).finish()
    }
}

impl<T> fmt::Debug for Definition<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Definition").field(&self.0.facts.name).finish()
    }
}
