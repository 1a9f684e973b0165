//! Bounds the memory of a connection.
//!
//! A connection reports what it holds after each round of work. If that exceeds
//! [`Limits::memory_per_connection`](crate::server::limits::Limits::memory_per_connection), the connection is closed; if it
//! exceeds the connection's share of the server's budget, reading is paused. Large replies need room before they are
//! accepted. The quotas and shares are in [`crate::memory_budget`].

use polyrpc_core::Reply;
use polyrpc_core::session::Server as Session;

use super::Connection;
use crate::memory_budget;
use crate::server::incidents::{Closing, Refusal};

/// Replies of at least this size are accepted only if the memory budget has room for them.
const LARGE_REPLY: usize = 64 << 10;

impl<S: Session> Connection<'_, S> {
    /// Reports the memory that the connection holds. Ends it if that exceeds the quota.
    pub(super) fn report_held(&mut self) {
        let unsent = self.session.unsent();
        self.account.report_output(self.bytes_sent(), self.unwritten_bytes(), unsent);
        let within = self.session.buffered() + unsent;
        let held = self.inbox.buffered_bytes() + self.stream.buffered_bytes() + self.out.len() + within;
        // Calls and streams mostly keep slices of these buffers. Each byte counts once.
        let consumed = self.inbox.consumed_bytes() + self.inbox.pinned_bytes();
        let held = held + consumed.saturating_sub(self.account.kept());
        self.account.report_held(held);
        if self.account.exceeds_quota() {
            self.registration.connection.close(Closing::Memory);
        }
    }

    /// Whether the connection holds more than its share of the memory budget.
    pub(super) fn is_over_share(&self) -> bool {
        self.account.is_over_share()
    }

    /// Whether reading is paused because the connection holds more than its share of the memory budget. If it mostly
    /// holds data that waits for the peer's windows, it must read the window updates; if mostly subscriptions, it must
    /// notice that the peer leaves. So it can hold at most as much again meanwhile.
    pub(super) fn is_read_paused(&self) -> bool {
        self.is_over_share()
            && self.session.unsent() + self.subscriptions.held_bytes() <= self.account.bytes() / 2
    }

    /// Accounts for a large reply, or replaces it by a failure if the memory budget has no room for it.
    #[inline]
    pub(super) fn bound_reply(&mut self, reply: &mut Reply) {
        let length = reply_length(reply);
        if length >= LARGE_REPLY {
            self.bound_large_reply(length, reply);
        }
    }

    #[cold]
    fn bound_large_reply(&mut self, length: usize, reply: &mut Reply) {
        self.fairness.record_reply(length);
        // The request may have been released by now.
        self.report_held();
        // Many calls may have been pending when their replies began to be unread: they leave room for others.
        let unread = self.unwritten_bytes() + self.session.unsent();
        let room = match unread >= self.listener.server.limits.unsent_per_connection {
            true => self.account.remaining_share(),
            false => self.account.remaining(),
        };
        if length <= room {
            self.account.add_unread(length);
            return self.account.charge(length);
        }
        self.registration.connection.record_refusal(Refusal::Memory);
        *reply = Reply::failure(memory_budget::no_room_for_reply());
    }
}

/// Returns the number of bytes of a reply that are counted.
pub(super) fn reply_length(reply: &Reply) -> usize {
    reply.attachment.len() + reply.result.as_ref().map_or(0, |message| message.len())
}
