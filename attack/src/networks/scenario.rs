//! The networks.

use std::time::Duration;

use super::link::Network;

/// A network, and the events on it.
#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) network: Network,
    /// Deadline of every call.
    pub(super) deadline: Duration,
    /// How long calls are made, before the cut if there is one.
    pub(super) length: Duration,
    /// How long the network is cut.
    pub(super) cut: Option<Duration>,
    /// Whether the server dies while it is cut, so that its end of every connection is gone.
    pub(super) restarts: bool,
}

impl Scenario {
    fn new(name: &'static str, network: Network) -> Self {
        let (deadline, length) = (Duration::from_secs(10), Duration::from_secs(10));
        Self { name, network, deadline, length, cut: None, restarts: false }
    }

    fn cut(self, cut: Duration) -> Self {
        Self { cut: Some(cut), deadline: Duration::from_secs(1), length: Duration::from_secs(3), ..self }
    }

    /// The same network while it is cut.
    pub(super) fn cut_network(&self) -> Network {
        Network { cut: true, ..self.network }
    }
}

pub(super) fn scenarios() -> [Scenario; 9] {
    let perfect = Network::default();
    let delayed = Network { delay: 0.05, jitter: 0.02, ..perfect };
    let five = Duration::from_secs(5);
    [
        Scenario::new("perfect", perfect),
        Scenario::new("loss of 1 %", Network { loss: 0.01, ..perfect }),
        Scenario::new("loss of 5 %", Network { loss: 0.05, ..perfect }),
        Scenario::new("50 ms ± 20 ms", delayed),
        Scenario::new("5 % reordered", Network { reorder: 0.05, jitter: 0.0, ..delayed }),
        Scenario::new("5 % duplicated", Network { duplicate: 0.05, ..perfect }),
        Scenario::new("1 Mbit/s", Network { rate: 1_000_000, ..perfect }),
        Scenario::new("cut for 5 s", perfect).cut(five),
        Scenario { restarts: true, ..Scenario::new("cut, the server restarts", perfect).cut(five) },
    ]
}
