use std::sync::LazyLock;
use std::time::Duration;

use crate::settings::Setting;

/// The settings of recorded calls.
#[derive(Debug)]
pub(crate) struct RpczSettings {
    pub(crate) enabled: Setting<bool>,
    pub(crate) samples: Setting<u64>,
    pub(crate) slow: Setting<Duration>,
}

/// Returns the settings, which are listed from the first time on.
pub(crate) fn rpcz_settings() -> &'static RpczSettings {
    static SETTINGS: LazyLock<RpczSettings> = LazyLock::new(|| RpczSettings {
        enabled: Setting::define("enable_rpcz", true, "Record calls, for /rpcz").register(),
        samples: Setting::define(
            "rpcz_samples_per_second",
            1000_u64,
            "How many calls a second are recorded, about",
        )
        .validate(|&samples| samples <= MAX_SAMPLES_PER_SECOND)
        .register(),
        slow: Setting::define(
            "rpcz_slow_second",
            Duration::from_millis(500),
            "Calls that take longer are kept whether they were chosen or not",
        )
        .register(),
    });
    &SETTINGS
}

/// Maximum number of samples a second.
const MAX_SAMPLES_PER_SECOND: u64 = 10_000;
