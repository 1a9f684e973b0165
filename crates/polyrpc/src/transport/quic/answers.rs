use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use quinn::{Connection, ConnectionStats, VarInt};
use tokio::sync::Notify;
use tokio::time::sleep;

/// Ends a client's connection if the server does not answer sent packets.
///
/// QUIC's idle timeout is for idle connections, and so long that calls would wait for their deadline. Between a packet
/// and its answer, silence means that the server or the network is gone: it acknowledges what it receives within
/// milliseconds, whatever its handlers do. While replies are expected, a silent server is probed.
#[derive(Debug)]
pub(super) struct AnswerWatch {
    /// Notified when something was sent, or a reply is expected.
    active: Notify,
    expects: AtomicBool,
    is_given_up: AtomicBool,
    /// Flow-control window of the connection, which grows with each probe.
    window: AtomicU32,
}

impl AnswerWatch {
    /// Watches a connection with this window, in a task that ends with it.
    pub(super) fn start(connection: Connection, window: u32, patience: Duration) -> Arc<Self> {
        let watch = Arc::new(Self {
            active: Notify::new(),
            expects: AtomicBool::new(false),
            is_given_up: AtomicBool::new(false),
            window: AtomicU32::new(window),
        });
        let watching = watch.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = connection.closed() => {}
                () = watching.give_up(&connection, patience) => {}
            }
        });
        watch
    }

    /// Records that something was written.
    pub(super) fn on_sent(&self) {
        self.active.notify_one();
    }

    /// Sets whether the server owes replies.
    pub(super) fn expect_replies(&self, are_expected: bool) {
        if self.expects.swap(are_expected, Ordering::Relaxed) != are_expected && are_expected {
            self.active.notify_one();
        }
    }

    /// Whether the connection was ended because the server did not answer.
    pub(super) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Acquire)
    }

    async fn give_up(&self, connection: &Connection, patience: Duration) {
        loop {
            self.active.notified().await;
            if self.is_unanswered(connection, patience).await {
                self.is_given_up.store(true, Ordering::Release);
                return connection.close(VarInt::from_u32(0), b"no answer");
            }
        }
    }

    /// Waits until something arrives while no reply is expected, or nothing has arrived for the patience. Then returns
    /// whether anything was sent meanwhile: new data, retransmissions, or a probe. If not, the peer owes no answer: it
    /// reads slowly, and its windows are full.
    async fn is_unanswered(&self, connection: &Connection, patience: Duration) -> bool {
        let mut before = connection.stats();
        // Counted rather than measured: while this process is stopped, answers wait in its socket.
        let mut silent_checks = 0;
        loop {
            sleep(patience / CHECKS_PER_TIMEOUT).await;
            let (now, expects) = (connection.stats(), self.expects.load(Ordering::Relaxed));
            if now.udp_rx.datagrams != before.udp_rx.datagrams {
                if !expects {
                    return false;
                }
                (silent_checks, before) = (0, now);
                continue;
            }
            silent_checks += 1;
            if silent_checks >= CHECKS_PER_TIMEOUT {
                let is_sent = frames_to_acknowledge(&now) != frames_to_acknowledge(&before);
                if is_sent || !expects {
                    return is_sent;
                }
            }
            if expects && silent_checks >= CHECKS_PER_TIMEOUT / 2 {
                self.probe(connection);
            }
        }
    }

    /// Sends a frame that the peer must acknowledge. quinn offers no PING: this is a MAX_DATA of one byte more.
    fn probe(&self, connection: &Connection) {
        let window = self.window.load(Ordering::Relaxed).saturating_add(1).min(super::MAX_WINDOW);
        self.window.store(window, Ordering::Relaxed);
        connection.set_receive_window(VarInt::from_u32(window));
    }
}

/// Returns the number of frames sent that the peer must acknowledge (RFC 9000 §13.2.1), of the kinds that a client
/// sends after the handshake. A datagram with acknowledgements only is not answered.
fn frames_to_acknowledge(stats: &ConnectionStats) -> u64 {
    let sent = &stats.frame_tx;
    [
        sent.stream,
        sent.ping,
        sent.max_data,
        sent.max_stream_data,
        sent.reset_stream,
        sent.stop_sending,
        sent.data_blocked,
        sent.stream_data_blocked,
        sent.new_connection_id,
        sent.retire_connection_id,
    ]
    .iter()
    .sum()
}

/// Number of checks within the patience.
const CHECKS_PER_TIMEOUT: u32 = 8;
