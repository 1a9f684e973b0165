//! Settings of the program that can be changed while it runs, like brpc's reloadable flags: on `/flags`, by callers
//! with the role [`Write`](crate::Role::Write).
//!
//! Reading one is a load of an atomic. A change passes the setting's validator, is recorded with its author, may
//! expire, and can be undone.
//!
//! ```
//! use std::sync::LazyLock;
//! use polyrpc_console::settings::Setting;
//!
//! static RETRIES: LazyLock<Setting<u64>> = LazyLock::new(|| {
//!     Setting::define("max_retries", 3, "Retries of a payment").validate(|&retries| retries <= 10).register()
//! });
//!
//! assert_eq!(RETRIES.get(), 3);
//! assert!(RETRIES.set(4));
//! assert!(!RETRIES.set(11));
//! ```

mod any_setting;
mod value;

mod audit;
mod registry;

mod action;
mod setting;

pub use self::setting::{Definition, Setting};
pub use self::value::SettingValue;

pub(crate) use self::action::{Action, Listed};
pub(crate) use self::audit::Change;
pub(crate) use self::registry::{ChangeError, Flag, change, changes, expire, flags, undo};
