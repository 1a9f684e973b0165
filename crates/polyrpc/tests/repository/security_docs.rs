//! `docs/security.md` names every limit with its default, as in the code.

use std::time::Duration;

use polyrpc::server::{Http2, Limits, MAX_REMEMBERED_PEERS};
use polyrpc_wire::{baidu_std, http, http_server, rpcx};

/// The defaults in the notation of the document.
fn defaults() -> Vec<(&'static str, String)> {
    // Every field by name: a new one must be added here and to the document.
    let Limits {
        message,
        decompressed,
        header,
        memory,
        memory_per_peer,
        memory_per_connection,
        unsent_per_connection,
        connections,
        connections_per_peer,
        in_flight,
        in_flight_per_peer,
        in_flight_per_connection,
        streams,
        streams_per_peer,
        streams_per_connection,
        first_byte_timeout,
        header_timeout,
        message_timeout,
        min_data_rate,
        write_timeout,
        half_close_timeout,
        idle_timeout,
        stream_idle_timeout,
        call_timeout,
        connection_age,
        connection_age_grace,
        authentication_timeout,
        credential_failures,
        http2,
        transfer_tokens,
        transfer_token_timeout,
    } = Limits::default();
    let Http2 {
        stream_window,
        large_stream_window,
        max_stream_window,
        connection_window,
        frame,
        large_frame,
        resets,
        resets_per_second,
        keepalive_interval,
        keepalive_timeout,
    } = http2;
    assert!(memory <= 1 << 30 && memory_per_connection == memory.min(160 << 20));
    assert_eq!(memory_per_peer, (memory / 2).max(memory_per_connection));
    vec![
        ("message", bytes(message)),
        ("decompressed", bytes(decompressed)),
        ("header", bytes(header)),
        ("http::MAX_FIELDS", count(http::MAX_FIELDS)),
        ("http_server::h2::MAX_FIELDS", count(http_server::h2::MAX_FIELDS)),
        ("baidu_std::MAX_USER_FIELDS", count(baidu_std::MAX_USER_FIELDS)),
        ("rpcx::MAX_METADATA", count(rpcx::MAX_METADATA)),
        (
            "memory",
            "a quarter of the memory that the process may use (cgroups included), at most 1 GiB".into(),
        ),
        ("memory_per_peer", "half of `memory`, and at least `memory_per_connection`".into()),
        ("memory_per_connection", "160 MiB, at most `memory`".into()),
        ("unsent_per_connection", bytes(unsent_per_connection)),
        ("connections", format!("{}, but at most the limit of open files minus 64", count(connections))),
        (
            "connections_per_peer",
            format!(
                "{}; half of what file descriptors allow, if that is no more",
                count(connections_per_peer)
            ),
        ),
        ("in_flight", count(in_flight)),
        ("in_flight_per_peer", count(in_flight_per_peer)),
        ("in_flight_per_connection", count(in_flight_per_connection)),
        ("streams", count(streams)),
        ("streams_per_peer", count(streams_per_peer)),
        ("streams_per_connection", count(streams_per_connection)),
        ("credential_failures", count(credential_failures as usize)),
        ("transfer_tokens", count(transfer_tokens)),
        ("server::MAX_REMEMBERED_PEERS", count(MAX_REMEMBERED_PEERS)),
        ("first_byte_timeout", time(Some(first_byte_timeout))),
        ("header_timeout", time(Some(header_timeout))),
        ("message_timeout", time(Some(message_timeout))),
        (
            "min_data_rate",
            format!("{} a second, as the mean over each `header_timeout`", bytes(min_data_rate)),
        ),
        ("write_timeout", time(Some(write_timeout))),
        ("half_close_timeout", time(Some(half_close_timeout))),
        ("idle_timeout", time(idle_timeout)),
        ("stream_idle_timeout", time(stream_idle_timeout)),
        ("call_timeout", time(call_timeout)),
        ("connection_age", time(connection_age)),
        ("connection_age_grace", time(Some(connection_age_grace))),
        ("authentication_timeout", time(Some(authentication_timeout))),
        ("transfer_token_timeout", time(Some(transfer_token_timeout))),
        ("stream_window", bytes(stream_window as usize)),
        ("large_stream_window", bytes(large_stream_window as usize)),
        ("max_stream_window", bytes(max_stream_window as usize)),
        ("connection_window", bytes(connection_window as usize)),
        ("frame", bytes(frame as usize)),
        ("large_frame", bytes(large_frame as usize)),
        ("resets", count(resets as usize)),
        ("resets_per_second", count(resets_per_second as usize)),
        ("keepalive_interval", time(keepalive_interval)),
        ("keepalive_timeout", time(Some(keepalive_timeout))),
        ("http::h2::MAX_STRAY_FRAMES", count(http::h2::MAX_STRAY_FRAMES)),
    ]
}

fn bytes(n: usize) -> String {
    match n {
        n if n.is_multiple_of(1 << 20) => format!("{} MiB", n >> 20),
        n => format!("{} KiB", n >> 10),
    }
}

fn count(n: usize) -> String {
    match n {
        0..1000 => n.to_string(),
        n => format!("{},{:03}", n / 1000, n % 1000),
    }
}

fn time(duration: Option<Duration>) -> String {
    match duration.map(|duration| duration.as_secs()) {
        None => "none".into(),
        Some(seconds) if seconds.is_multiple_of(3600) => format!("{} h", seconds / 3600),
        Some(seconds) if seconds.is_multiple_of(60) => format!("{} min", seconds / 60),
        Some(seconds) => format!("{seconds} s"),
    }
}

/// Settings and defaults in the tables of the document, in its order.
fn documented(text: &str) -> Vec<(&str, String)> {
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| {
        let (name, rest) = row.split_once("` | ")?;
        // Pages of the console have limits of their own.
        if name.starts_with('/') {
            return None;
        }
        Some((name, rest.split(" | ").next()?.to_owned()))
    })
    .collect()
}

#[test]
fn docs_security_names_every_limit_with_its_default() {
    let text = include_str!("../../../../docs/security.md");
    let mut rows = documented(text);
    // Present with the feature only.
    rows.retain(|(name, _)| !name.starts_with("quic::"));
    assert_eq!(rows, defaults());
}

#[cfg(feature = "quic")]
#[test]
fn docs_security_names_the_limit_of_quic() {
    let rows = documented(include_str!("../../../../docs/security.md"));
    let value = bytes(polyrpc::quic::MAX_WINDOWS);
    assert!(rows.contains(&("quic::MAX_WINDOWS", value)), "{rows:?}");
}
