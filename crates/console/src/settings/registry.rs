//! The settings of the process, by name, and the history of their changes.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use super::any_setting::AnySetting;
use super::audit::{Audit, Change};

static SETTINGS: LazyLock<Mutex<Settings>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Settings {
    known: BTreeMap<String, Weak<dyn AnySetting>>,
    audit: Audit,
}

fn lock() -> MutexGuard<'static, Settings> {
    SETTINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lists a setting, unless its name is taken.
pub(super) fn list(setting: Arc<dyn AnySetting>) {
    let mut settings = lock();
    settings.known.retain(|_, known| known.strong_count() > 0);
    let name = setting.facts().name.clone();
    if settings.known.contains_key(&name) {
        tracing::warn!(name, "a setting is not listed: its name is taken");
        return;
    }
    settings.known.insert(name, Arc::downgrade(&setting));
}

/// A setting as shown on a page, or a fixed value.
#[derive(Debug, Clone)]
pub(crate) struct Flag {
    pub(crate) name: String,
    pub(crate) value: String,
    pub(crate) default: String,
    pub(crate) description: String,
    /// Where it is defined.
    pub(crate) location: String,
    pub(crate) reloadable: bool,
}

/// Returns every setting, sorted by name.
pub(crate) fn flags() -> Vec<Flag> {
    let known: Vec<_> = lock().known.values().filter_map(Weak::upgrade).collect();
    let flag = |setting: Arc<dyn AnySetting>| {
        let facts = setting.facts();
        let shown = |value| if facts.secret { HIDDEN.to_owned() } else { value };
        Flag {
            name: facts.name.clone(),
            value: shown(setting.value()),
            default: shown(setting.default()),
            description: facts.description.clone(),
            location: facts.location.file().to_owned(),
            reloadable: true,
        }
    };
    known.into_iter().map(flag).collect()
}

const HIDDEN: &str = "***";

/// Why a setting was not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeError {
    /// There is no setting, or change, of that name.
    Unknown,
    /// The text is not a value of its type, or its validator rejects it.
    Invalid,
    /// It was changed again since.
    Changed,
}

/// Changes a setting, for a while if a time is given.
pub(crate) fn change(
    name: &str,
    value: &str,
    author: &str,
    during: Option<Duration>,
) -> Result<Change, ChangeError> {
    // One change at a time, so that the record is in order. Validators are the program's, and must not change settings.
    let mut settings = lock();
    let setting = settings.known.get(name).and_then(Weak::upgrade).ok_or(ChangeError::Unknown)?;
    let old = setting.value();
    if !setting.set_text(value) {
        return Err(ChangeError::Invalid);
    }
    let change = Change {
        id: 0,
        at: SystemTime::now(),
        author: author.to_owned(),
        name: name.to_owned(),
        restored: old.clone(),
        old,
        new: setting.value(),
        until: during.and_then(|during| Instant::now().checked_add(during)),
        secret: setting.facts().secret,
    };
    // Nothing has changed, and no earlier change expires that this one would keep.
    if change.old == change.new && !settings.audit.expects_end(name) {
        return Ok(change);
    }
    let change = settings.audit.record(change);
    let shown = |value| if change.secret { HIDDEN.to_owned() } else { String::clone(value) };
    let (old, new) = (shown(&change.old), shown(&change.new));
    tracing::info!(name, old, new, author, "a setting was changed");
    Ok(change)
}

/// Restores the value of a setting before a change, unless it was changed since.
pub(crate) fn undo(id: u64, author: &str) -> Result<Change, ChangeError> {
    let made = lock().audit.get(id).cloned().ok_or(ChangeError::Unknown)?;
    revert(&made, &made.old, author)
}

/// Sets the value from before a change, unless the setting was changed since.
fn revert(made: &Change, value: &str, author: &str) -> Result<Change, ChangeError> {
    let current = lock().known.get(&made.name).and_then(Weak::upgrade).map(|setting| setting.value());
    match current {
        None => Err(ChangeError::Unknown),
        Some(current) if current != made.new => Err(ChangeError::Changed),
        Some(_) => change(&made.name, value, author, None),
    }
}

/// Restores the values before the changes that have expired.
pub(crate) fn expire(now: Instant) {
    let expired = lock().audit.take_expired(now);
    for change in expired {
        if let Err(error) = revert(&change, &change.restored, "expiry") {
            tracing::warn!(
                name = change.name,
                ?error,
                "a change of a setting has expired, and was not undone"
            );
        }
    }
}

/// Returns the last changes, the latest first, with secret values hidden.
pub(crate) fn changes() -> Vec<Change> {
    let shown = |change: &Change| match change.secret {
        true => Change { old: HIDDEN.into(), new: HIDDEN.into(), restored: HIDDEN.into(), ..change.clone() },
        false => change.clone(),
    };
    lock().audit.changes().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Setting;
    use super::*;

    #[test]
    fn change_is_validated_recorded_and_undone() {
        let setting = Setting::define("registry_test_limit", 5_u64, "for a test")
            .validate(|&value| value < 100)
            .register();
        let wrong = |value| change("registry_test_limit", value, "me", None).unwrap_err();
        assert_eq!(
            (wrong("100"), wrong("x"), wrong("")),
            (ChangeError::Invalid, ChangeError::Invalid, ChangeError::Invalid)
        );
        assert_eq!(change("registry_test_nothing", "1", "me", None).unwrap_err(), ChangeError::Unknown);
        let made = change("registry_test_limit", "7", "me", None).unwrap();
        assert_eq!((setting.get(), made.old.as_str(), made.new.as_str()), (7, "5", "7"));
        let later = change("registry_test_limit", "8", "you", None).unwrap();
        assert_eq!(undo(made.id, "me").unwrap_err(), ChangeError::Changed);
        undo(later.id, "me").unwrap();
        assert_eq!(setting.get(), 7);
        let recorded: Vec<_> =
            changes().into_iter().filter(|change| change.name == "registry_test_limit").collect();
        assert_eq!(recorded.len(), 3);
        assert_eq!(recorded[1].author, "you");
        // The same value is no change.
        change("registry_test_limit", "7", "me", Some(Duration::from_secs(10))).unwrap();
        let recorded = changes().into_iter().filter(|change| change.name == "registry_test_limit");
        assert_eq!(recorded.count(), 3);
        drop(setting);
        assert_eq!(undo(made.id, "me").unwrap_err(), ChangeError::Unknown);
    }

    #[test]
    fn change_expires_unless_another_follows() {
        let setting = Setting::define("registry_test_expiry", 1_u64, "for a test").register();
        let soon = Some(Duration::from_secs(10));
        let later = Instant::now() + Duration::from_secs(11);
        change("registry_test_expiry", "2", "me", soon).unwrap();
        expire(Instant::now());
        assert_eq!(setting.get(), 2);
        expire(later);
        assert_eq!(setting.get(), 1);
        change("registry_test_expiry", "3", "me", soon).unwrap();
        change("registry_test_expiry", "4", "me", None).unwrap();
        expire(later);
        assert_eq!(setting.get(), 4);
        // A value that was temporary is not restored: the same one for longer, and another one.
        for value in [6, 7] {
            change("registry_test_expiry", "6", "me", soon).unwrap();
            change("registry_test_expiry", &value.to_string(), "me", Some(Duration::from_secs(20))).unwrap();
            expire(later);
            assert_eq!(setting.get(), value);
            expire(Instant::now() + Duration::from_secs(21));
            assert_eq!(setting.get(), 4);
        }
        // A lasting value between them is.
        change("registry_test_expiry", "6", "me", soon).unwrap();
        change("registry_test_expiry", "8", "me", None).unwrap();
        change("registry_test_expiry", "9", "me", soon).unwrap();
        expire(Instant::now() + Duration::from_secs(11));
        assert_eq!(setting.get(), 8);
    }

    #[test]
    fn secret_values_are_hidden() {
        let setting = Setting::define("registry_test_secret", 1234_u64, "for a test").secret().register();
        change("registry_test_secret", "5678", "me", None).unwrap();
        let flag = flags().into_iter().find(|flag| flag.name == "registry_test_secret").unwrap();
        assert_eq!((flag.value.as_str(), flag.default.as_str()), ("***", "***"));
        let made = changes().into_iter().find(|change| change.name == "registry_test_secret").unwrap();
        assert_eq!((made.old.as_str(), made.new.as_str()), ("***", "***"));
        assert!(!format!("{setting:?}").contains("5678"));
    }
}
