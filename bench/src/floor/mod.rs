//! The floor: the cost of the same bytes on this machine without any RPC.
//!
//! Two servers, since there are two ways to wait: a blocking thread per connection, which is the
//! fastest with one call in flight, and one thread with an epoll, which is the fastest with many. One
//! client, blocking; the raw load client of [`load`](crate::load) is the other.

mod blocking_client;
mod blocking_server;
mod echo;
mod epoll_server;

pub(crate) use blocking_client::Blocking;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::thread;

/// Serves replies of `reply_len` bytes at `listen` with one thread per connection.
pub(crate) fn serve_blocking(listen: SocketAddr, reply_len: usize) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(listen)?;
    let address = listener.local_addr()?;
    thread::spawn(move || report(blocking_server::run(&listener, reply_len)));
    Ok(address)
}

/// Serves replies of `reply_len` bytes at `listen` with one thread and epoll.
pub(crate) fn serve_epoll(listen: SocketAddr, reply_len: usize) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(listen)?;
    let address = listener.local_addr()?;
    let mut server = epoll_server::Server::new(listener, reply_len)?;
    thread::spawn(move || report(server.run()));
    Ok(address)
}

/// A server runs until its process ends, or an error occurs.
fn report(ended: io::Result<()>) {
    if let Err(error) = ended {
        eprintln!("the floor's server ended: {error}");
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;
    use crate::exchange::Protocol;
    use crate::load::{Epoll, Load};

    /// A window at first. On a busy machine it may have no call: each further one is four times as long.
    const WINDOW: Duration = Duration::from_millis(20);
    const LAST: Duration = WINDOW.saturating_mul(256);
    const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

    #[test]
    fn blocking_client_and_server_answer_one_call_in_flight() {
        for len in [32, 65536] {
            let exchange = Protocol::BaiduStd.floor_exchange(len);
            let server = serve_blocking(ANY_PORT, exchange.reply.len()).unwrap();
            let mut client = Blocking::connect(server, &exchange).unwrap();
            assert_answered(&mut client);
        }
    }

    #[test]
    fn both_servers_answer_many_calls_on_many_connections() {
        for len in [32, 65536] {
            for in_flight in [1, 7] {
                let exchange = Protocol::BaiduStd.floor_exchange(len);
                let reply_len = exchange.reply.len();
                for serve in [serve_epoll, serve_blocking] {
                    let server = serve(ANY_PORT, reply_len).unwrap();
                    assert_answered(&mut Epoll::connect(server, &exchange, 5, in_flight).unwrap());
                }
            }
        }
    }

    fn is_answered(load: &mut dyn Load, window: Duration) -> bool {
        let tally = load.run(window).unwrap();
        assert_eq!(tally.errors, 0, "{tally:?}");
        tally.calls > 0
    }

    /// Twice: the first run is the warm-up.
    fn assert_answered(load: &mut dyn Load) {
        for _ in 0..2 {
            let mut window = WINDOW;
            while !is_answered(load, window) {
                assert!(window < LAST, "no call in {window:?}");
                window *= 4;
            }
        }
    }
}
