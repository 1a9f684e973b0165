//! The operator, who reads pages of the server's admin listener during an attack: one every 100 ms, each over a new
//! connection.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::admin_pages::{PATIENCE, exchange};
use crate::measure::{Calls, Record};
use crate::profile::Profile;
use crate::report::Row;
use crate::thresholds::{MAX_ADMIN_LATENCY, SHORT_MAX_ADMIN_LATENCY};

const PERIOD: Duration = Duration::from_millis(100);
const PAGES: [&str; 5] = ["/readyz", "/status", "/connections", "/vars", "/rpcz"];
const NAME: &str = "admin listener";

/// Requests the pages, one after the other.
pub(crate) async fn poll_pages(address: String, record: Arc<Record>) {
    let mut interval = interval(PERIOD);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for page in PAGES.iter().cycle() {
        interval.tick().await;
        let begun = Instant::now();
        match timeout(PATIENCE, get(&address, page)).await {
            Ok(Ok(())) => record.record_answer(NAME, begun.elapsed()),
            Ok(Err(reason)) => record.record_loss(NAME, format!("{page}: {reason}")),
            Err(_) => record.record_loss(NAME, format!("{page}: no answer within {} s", PATIENCE.as_secs())),
        }
    }
}

async fn get(address: &str, page: &str) -> Result<(), String> {
    let response = exchange(address, page).await.map_err(|error| error.to_string())?;
    match response.starts_with(b"HTTP/1.1 200 ") {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&response).lines().next().unwrap_or_default().to_owned()),
    }
}

impl Row {
    /// Checks that the admin listener has answered every request in time.
    pub(crate) fn judge_admin(&mut self, record: &Record, profile: Profile) {
        let Calls { latencies, lost, reason } = record.take().remove(NAME).unwrap_or_default();
        self.admin = latencies.iter().copied().max().unwrap_or_default();
        if latencies.is_empty() {
            self.failures.push(format!("the {NAME} answered no request"));
        }
        if lost > 0 {
            self.failures.push(format!("the {NAME} failed {lost} times: {}", reason.unwrap_or_default()));
        }
        let max = profile.pick(MAX_ADMIN_LATENCY, SHORT_MAX_ADMIN_LATENCY);
        if self.admin > max {
            self.failures.push(format!("the {NAME} took more than {} ms", max.as_millis()));
        }
    }
}
