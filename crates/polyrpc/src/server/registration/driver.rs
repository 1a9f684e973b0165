use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use polyrpc_wire::Status;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::planned::{Planned, Said};
use super::{Event, Registration};
use crate::client::Result;
use crate::discovery::{Entry, Instance, Register, jittered};
use crate::net::Address;
use crate::server::open::Open;

/// Enters a server into one registry, again and again, and takes it out at the end.
pub(super) struct Driver {
    registry: Arc<dyn Register>,
    registration: Registration,
    services: Vec<Service>,
    /// Where clients are to call.
    instance: Instance,
    /// What is to be said of it.
    said: watch::Receiver<Said>,
    stop: watch::Receiver<bool>,
    open: Arc<Open>,
    began: Instant,
    /// How often in a row something could not be entered.
    failures: u32,
}

struct Service {
    name: String,
    /// The registry has it.
    is_entered: bool,
}

impl Driver {
    pub(super) fn new(
        planned: Planned,
        bound: &Address,
        open: Arc<Open>,
        said: watch::Receiver<Said>,
        stop: watch::Receiver<bool>,
    ) -> Self {
        let Planned { registry, registration, advertised, services, said: _ } = planned;
        let services = services.into_iter().map(|name| Service { name, is_entered: false });
        Self {
            instance: advertised.instance(bound, registration.network),
            services: services.collect(),
            registry,
            registration,
            said,
            stop,
            open,
            began: Instant::now(),
            failures: 0,
        }
    }

    /// Runs until it is told to stop and has taken out what it entered.
    pub(super) async fn run(mut self) {
        while !*self.stop.borrow_and_update() {
            self.publish().await;
            self.rest().await;
        }
        self.withdraw().await;
    }

    /// Waits until something is to be entered anew, or taken out.
    async fn rest(&mut self) {
        let pause = self.pause();
        tokio::select! {
            () = sleep(pause) => {}
            Ok(()) = self.said.changed() => {}
            Ok(()) = self.stop.changed() => {}
        }
    }

    /// Short while the registry is gone, so that the server is back soon after it; yet not so short that all its
    /// servers together keep it from getting up.
    fn pause(&self) -> Duration {
        let every = self.registration.every;
        jittered(match self.failures {
            0 => every,
            failures => {
                FIRST_PAUSE.saturating_mul(1 << (failures - 1).min(8)).min(LONGEST_PAUSE).min(every / 2)
            }
        })
    }

    async fn publish(&mut self) {
        let entries = self.entries();
        let attempts = entries.into_iter().map(|entry| attempt(&*self.registry, entry, Wish::Publish));
        let outcomes: Vec<_> = stream::iter(attempts).buffered(AT_ONCE).collect().await;
        let mut all_well = true;
        for (service, (entry, outcome)) in self.services.iter_mut().zip(outcomes) {
            all_well &= outcome.is_ok();
            let was_entered = std::mem::replace(&mut service.is_entered, outcome.is_ok());
            match &outcome {
                Ok(()) if was_entered => {}
                Ok(()) => {
                    tracing::info!(%entry, "entered in the registry");
                    self.registration.tell(Event::Entered(&entry));
                }
                Err(error) => {
                    // Once for each time that it is lost; it is tried again soon, and often.
                    if was_entered || self.failures == 0 {
                        tracing::warn!(%entry, %error, "not entered in the registry; it is tried again");
                    }
                    self.registration.tell(Event::Failed(&entry, error));
                }
            }
        }
        self.failures = if all_well { 0 } else { self.failures.saturating_add(1) };
    }

    /// Takes out everything, also what could not be entered: the registry may have it although it did not say so.
    async fn withdraw(&mut self) {
        let entries = self.entries();
        let attempts = entries.into_iter().map(|entry| attempt(&*self.registry, entry, Wish::Withdraw));
        let mut outcomes = stream::iter(attempts).buffer_unordered(AT_ONCE);
        while let Some((entry, outcome)) = outcomes.next().await {
            match &outcome {
                Ok(()) => self.registration.tell(Event::Withdrawn(&entry)),
                Err(error) => self.registration.tell(Event::Failed(&entry, error)),
            }
        }
    }

    /// What is to be entered now.
    fn entries(&mut self) -> Vec<Entry> {
        let rates = self.registration.rates.then(|| self.rates());
        // What is said after this is entered the next time.
        let said = self.said.borrow_and_update();
        let entry = |service: &Service| {
            let mut attributes = said.of(&service.name);
            if let Some(rates) = &rates {
                rates.iter().for_each(|(name, rate)| attributes.set(*name, rate));
            }
            Entry {
                service: service.name.clone(),
                instance: self.instance.clone().with(attributes),
                ttl: self.registration.ttl.max(self.registration.every * 2),
            }
        };
        self.services.iter().map(entry).collect()
    }

    /// How many calls and connections there were each second since the server began, as rpcx's plugins write them:
    /// go-metrics' `RateMean` by `%.2f` (rpcx `serverplugin/mdns.go`).
    fn rates(&self) -> [(&'static str, String); 2] {
        let (calls, connections) = self.open.totals();
        let seconds = self.began.elapsed().as_secs_f64();
        let rate = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        [("calls", format!("{:.2}", rate(calls))), ("connections", format!("{:.2}", rate(connections)))]
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// With an attempt that came to nothing before it, the server is back within 5 s of its registry, also where it is
/// entered anew less often.
const LONGEST_PAUSE: Duration = Duration::from_millis(1500);
/// How many entries are under way at a time.
const AT_ONCE: usize = 8;
/// How long a registry may take for one entry.
const ATTEMPT: Duration = Duration::from_secs(3);

/// One thing that is asked of a registry.
#[derive(Clone, Copy)]
enum Wish {
    Publish,
    Withdraw,
}

async fn attempt(registry: &dyn Register, entry: Entry, wish: Wish) -> (Entry, Result<()>) {
    let asked = match wish {
        Wish::Publish => registry.publish(&entry),
        Wish::Withdraw => registry.withdraw(&entry),
    };
    let outcome = match timeout(ATTEMPT, asked).await {
        Ok(outcome) => outcome,
        Err(_) => {
            Err(Status::deadline_exceeded(format!("the registry did not answer within {ATTEMPT:?}")).into())
        }
    };
    (entry, outcome)
}

impl Registration {
    /// A listener that panics must not keep the server from being found.
    fn tell(&self, event: Event<'_>) {
        if let Some(listener) = &self.on_event {
            let _ = catch_unwind(AssertUnwindSafe(|| listener(event)));
        }
    }
}
