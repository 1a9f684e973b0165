//! Variables of the program, like brpc's bvar: they appear on `/vars` with their recent history, and on `/metrics`.
//!
//! A variable is listed under its name for as long as it, or a clone of it, exists. Changing one takes no lock; threads
//! count separately. Variables of recent time ([`PerSecond`], [`Window`], [`Latency`]) are sampled each second by the
//! [`Console`](crate::Console)'s thread: without a console they are zero, and nothing runs.
//!
//! ```
//! use std::time::Duration;
//! use polyrpc_console::vars::{Counter, Family, Gauge, Latency, PerSecond};
//!
//! let orders = Counter::new("orders");
//! let per_second = PerSecond::new("orders_per_second", &orders);
//! let depth = Gauge::from_fn("queue_depth", || 42.0);
//! let payment = Latency::new("payment");
//! let by_zone = Family::<Counter, 2>::new("orders_by_zone", ["zone", "kind"]);
//!
//! orders.add(1);
//! payment.record(Duration::from_millis(3));
//! by_zone.with(["north", "book"]).add(1);
//! assert_eq!(orders.value(), 1);
//! ```

#![allow(private_interfaces, reason = "methods of a sealed trait")]

mod name;
mod sharded;
mod value;
mod windows;

mod registry;

mod counter;
mod gauge;
mod histogram;
mod max;

mod latency;

mod window;

mod family;

pub use self::counter::Counter;
pub use self::family::{Family, Instrument};
pub use self::gauge::Gauge;
pub use self::latency::Latency;
pub use self::max::Max;
pub use self::window::{PerSecond, Window, Windowed};

pub(crate) use self::name::to_underscored;
pub(crate) use self::registry::{read_all, sample};
pub(crate) use self::value::{Kind, Reading, Value};
