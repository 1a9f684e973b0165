//! Tests with damaged bytes: no session may panic on them, or allocate memory by a length that only the peer claims.

use bytes::BytesMut;

use crate::Outbox;
use crate::session::{Client, Server, ServerEvent};

/// Feeds a server session `bytes` with every single bit flipped, every truncation, and every aligned and unaligned
/// 32-bit field set to a wrong length. It must neither panic nor trust a length claimed by the peer: the bytes it waits
/// for never exceed the limit.
pub fn assert_survives_damage<S: Server>(new: impl Fn() -> S, bytes: &[u8], limit: usize) {
    let check = |damaged: &[u8]| {
        let mut session = new();
        let (mut inbox, mut out) = (BytesMut::from(damaged), Outbox::new());
        while let Ok(Some(ServerEvent::Call(..))) = session.next_event(&mut inbox, &mut out) {}
        assert!(
            session.bytes_needed() <= limit,
            "wants {} bytes of a limit of {limit}",
            session.bytes_needed()
        );
    };
    damage(bytes, check);
}

/// Does the same for a client session; `new` creates one that waits for a response.
pub fn assert_client_survives_damage<C: Client>(new: impl Fn() -> C, bytes: &[u8], limit: usize) {
    let check = |damaged: &[u8]| {
        let mut session = new();
        let (mut inbox, mut out) = (BytesMut::from(damaged), Outbox::new());
        while let Ok(Some(_)) = session.next_event(&mut inbox, &mut out) {}
        assert!(
            session.bytes_needed() <= limit,
            "wants {} bytes of a limit of {limit}",
            session.bytes_needed()
        );
    };
    damage(bytes, check);
}

/// Calls `check` with every damaged variant of `bytes`.
pub fn damage(bytes: &[u8], check: impl Fn(&[u8])) {
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        check(&damaged);
    }
    for end in 0..bytes.len() {
        check(&bytes[..end]);
    }
    for at in 0..bytes.len().saturating_sub(3) {
        for lie in [0u32, 1, (1 << 31) - 1, 1 << 31, u32::MAX] {
            let mut damaged = bytes.to_vec();
            damaged[at..at + 4].copy_from_slice(&lie.to_be_bytes());
            check(&damaged);
            damaged[at..at + 4].copy_from_slice(&lie.to_le_bytes());
            check(&damaged);
        }
    }
}
