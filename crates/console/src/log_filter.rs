//! The filter of the program's log, which can be changed at run time.

use std::sync::{Arc, Mutex, PoisonError};

use tracing::level_filters::LevelFilter;

use crate::settings::{Action, Listed};

/// Name of the setting.
pub(crate) const LOG_FILTER: &str = "log_filter";

/// Maximum length of a filter.
const MAX_FILTER_LEN: usize = 1 << 10;

/// Lists the setting; `apply` returns whether it accepts a filter.
pub(crate) fn list(current: String, apply: impl Fn(&str) -> bool + Send + Sync + 'static) -> Listed {
    let current = Arc::new(Mutex::new(current));
    let read = current.clone();
    Action::list(
        LOG_FILTER,
        "What is logged: a level, or levels of parts of the program (polyrpc=debug,warn)",
        move || read.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        move |text| {
            let is_valid = is_filter(text) && apply(text);
            if is_valid {
                text.clone_into(&mut current.lock().unwrap_or_else(PoisonError::into_inner));
            }
            is_valid
        },
    )
}

/// Whether a text is a list of levels. Parsers of filters take a word that is no level for the name of a part.
fn is_filter(text: &str) -> bool {
    let is_directive = |part: &str| match part.rsplit_once('=') {
        Some((target, level)) => !target.is_empty() && level.parse::<LevelFilter>().is_ok(),
        None => !part.is_empty() && part.parse::<LevelFilter>().is_ok(),
    };
    text.len() <= MAX_FILTER_LEN && text.split(',').map(str::trim).all(is_directive)
}

#[cfg(test)]
mod tests {
    use super::is_filter;

    #[test]
    fn filters_are_levels_of_parts() {
        for filter in ["info", "polyrpc=debug,warn", "a::b=trace, off"] {
            assert!(is_filter(filter), "{filter}");
        }
        for wrong in ["", "loud", "polyrpc=loud", "info,,warn", "=info", &"info,".repeat(400)] {
            assert!(!is_filter(wrong), "{wrong}");
        }
    }
}
