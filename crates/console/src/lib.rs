#![doc = include_str!("../README.md")]

// From bottom to top: no module refers to one that comes after it.
mod clean;
mod html;
mod text;
mod time;
mod wildcard;

mod process;
mod role;
mod trend;

pub mod settings;
pub mod vars;

mod log_filter;

mod controls;

mod observed;

mod tap;

mod spans;

mod trial;

mod stalls;

#[cfg(feature = "profile")]
mod profiler;

mod history;
mod stats;

mod fleet;

mod own_page;

mod console;

mod reply;
mod request;

mod pages;

mod respond;

mod admin;
mod service_port;

pub use self::admin::{Admin, AdminHandle};
pub use self::console::Console;
pub use self::own_page::PageContent;
pub use self::role::Role;

/// jemalloc, by which `/hotspots/heap` shows where memory was allocated (feature `jemalloc`): make it the allocator of
/// the program, and start the program with `_RJEM_MALLOC_CONF=prof:true,prof_active:false`.
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: polyrpc_console::Jemalloc = polyrpc_console::Jemalloc;
/// ```
///
/// The first request for a profile starts sampling: one allocation per half MiB, with its stack.
#[cfg(all(
    feature = "jemalloc",
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
pub use tikv_jemallocator::Jemalloc;
