//! Identity of a server's endpoint, which outlives its process.
//!
//! A server that has lost the state of a connection answers its datagrams by a stateless reset (RFC 9000 §10.3), so
//! that the client need not wait for its timeouts. The client accepts it only if it contains a token that the server
//! sent earlier. The tokens of a restarted server are the same if they are derived from a secret that it still has: the
//! private key of its certificate. Machines that share a certificate have different tokens, since their names and
//! addresses are part of the secret: otherwise an attacker that knows the ids of one machine's connections could have
//! another machine reset them (§21.11).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use quinn::{ConnectionId, ConnectionIdGenerator, EndpointConfig};
use ring::hmac;

/// Returns the configuration of an endpoint with this secret, at this address. The port is not part of it: the
/// server may return with another one behind a relay.
pub(super) fn endpoint_config(secret: &[u8], address: IpAddr) -> EndpointConfig {
    let secret = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let system = rustix::system::uname();
    let machine = system.nodename().to_string_lossy();
    let context = format!("polyrpc: stateless resets of QUIC, of {address} at {machine}");
    let derived = hmac::sign(&secret, context.as_bytes());
    let mut config = EndpointConfig::new(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref())));
    // quinn's default marks its ids with a number of the process, and does not answer ids of an earlier process.
    config.cid_generator(|| Box::new(RandomIds));
    config
}

/// Random connection ids without a mark.
#[derive(Debug)]
struct RandomIds;

impl ConnectionIdGenerator for RandomIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = [0; LENGTH];
        getrandom::fill(&mut id).expect("the system has random numbers");
        ConnectionId::new(&id)
    }

    fn cid_len(&self) -> usize {
        LENGTH
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// Length in bytes, as that of quinn's ids.
const LENGTH: usize = 8;
