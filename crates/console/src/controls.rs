//! Settings of an observed server: whether it is drained, and its weight in registries.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use polyrpc::server::Monitor;

use crate::settings::{Action, Listed, Setting};

/// Settings of a server, listed for as long as this exists.
#[derive(Debug)]
pub(crate) struct Controls {
    drain: Arc<Drain>,
    _listed: Vec<Listed>,
}

/// Whether a server is drained.
#[derive(Debug)]
struct Drain {
    monitor: Monitor,
    state: Mutex<DrainState>,
}

#[derive(Debug, Clone, Copy)]
enum DrainState {
    Serving,
    /// Not ready since this time; its connections are not drained yet.
    Leaving(Instant),
    Drained,
}

/// Time between a server's report that it is not ready and the end of its connections.
fn delay() -> Duration {
    static DELAY: LazyLock<Setting<Duration>> = LazyLock::new(|| {
        Setting::define(
            "drain_delay_second",
            Duration::from_secs(5),
            "Time between the report that a drained server is not ready and the end of its connections",
        )
        .validate(|&delay| delay <= MAX_DRAIN_DELAY)
        .register()
    });
    DELAY.get()
}

const MAX_DRAIN_DELAY: Duration = Duration::from_secs(600);

/// The largest weight.
const MAX_WEIGHT: u32 = 1_000_000;

impl Controls {
    /// Lists the settings of a server; `port` makes their names unique.
    pub(crate) fn list(monitor: &Monitor, port: &str) -> Self {
        delay();
        let drain = Arc::new(Drain { monitor: monitor.clone(), state: Mutex::new(DrainState::Serving) });
        let (read, written) = (drain.clone(), drain.clone());
        let mut listed = vec![Action::list(
            &format!("drain@{port}"),
            "Whether the server is drained: it reports that it is not ready, then its connections finish their calls and \
             close",
            move || read.is_draining().to_string(),
            move |text| text.parse().is_ok_and(|drains| written.set(drains)),
        )];
        if monitor.registration().is_published() {
            let (read, written) = (monitor.registration().clone(), monitor.registration().clone());
            listed.push(Action::list(
                &format!("weight@{port}"),
                "Weight of the server in the registries that publish it; empty if it has none",
                move || read.get("weight").unwrap_or_default(),
                move |text| match text.parse::<u32>() {
                    Ok(weight) if weight <= MAX_WEIGHT => {
                        written.set("weight", text);
                        true
                    }
                    Err(_) if text.is_empty() => {
                        written.remove("weight");
                        true
                    }
                    _ => false,
                },
            ));
        }
        Self { drain, _listed: listed }
    }

    /// Drains the connections of a server that has reported for long enough that it is not ready.
    pub(crate) fn tick(&self, now: Instant) {
        self.drain.tick(now);
    }
}

impl Drain {
    fn is_draining(&self) -> bool {
        !matches!(*self.state(), DrainState::Serving)
    }

    /// Starts or stops draining the server. Returns whether it runs.
    fn set(&self, drains: bool) -> bool {
        let mut state = self.state();
        if !self.monitor.set_ready(!drains) {
            return false;
        }
        *state = match (drains, *state) {
            (false, _) => DrainState::Serving,
            (true, DrainState::Serving) => DrainState::Leaving(Instant::now()),
            (true, state) => state,
        };
        true
    }

    fn tick(&self, now: Instant) {
        let mut state = self.state();
        if let DrainState::Leaving(since) = *state
            && now.saturating_duration_since(since) >= delay()
        {
            let connections = self.monitor.drain_connections();
            tracing::info!(connections, "the connections of a server are drained");
            *state = DrainState::Drained;
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, DrainState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
