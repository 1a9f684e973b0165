use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::UdpSocket;

use super::packet::{self, Names, Query};
use super::{Mdns, socket};
use crate::discovery::Advertisement;
use crate::error::ClientResult as Result;
use crate::runtime::AbortOnDrop;

/// Answers mDNS queries for the servers of this program.
#[derive(Debug, Default)]
pub(super) struct Announcer {
    entries: Arc<Entries>,
    answering: tokio::sync::Mutex<Option<AnnouncerTask>>,
}

/// Announced entries, by service and address.
#[derive(Debug, Default)]
struct Entries(Mutex<BTreeMap<(String, String), Advertisement>>);

impl Entries {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, String), Advertisement>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(entry: &Advertisement) -> (String, String) {
    (entry.service.clone(), entry.instance.to_string())
}

#[derive(Debug)]
struct AnnouncerTask {
    room: Arc<ReplyQueue>,
    /// Task that ends when this is dropped.
    _task: AbortOnDrop<()>,
}

/// Destination of answers.
#[derive(Debug)]
struct ReplyQueue {
    socket: UdpSocket,
    interfaces: Vec<Ipv4Addr>,
    port: u16,
    names: Names,
}

impl Announcer {
    /// Announces an entry from now on, and sends the announcement if it is new.
    pub(super) async fn publish(&self, mdns: &Mdns, entry: &Advertisement) -> Result<()> {
        let room = self.room(mdns).await?;
        let packet = packet::announcement(&room.names, entry, 0, true)?;
        let known = self.entries.lock().insert(key(entry), entry.clone());
        if known.as_ref() != Some(entry) {
            room.send_packet(&packet).await;
        }
        Ok(())
    }

    /// Withdraws an entry, and sends a goodbye.
    pub(super) async fn withdraw(&self, mdns: &Mdns, entry: &Advertisement) -> Result<()> {
        let known = self.entries.lock().remove(&key(entry));
        if known.is_some() {
            let room = self.room(mdns).await?;
            room.send_packet(&packet::announcement(&room.names, entry, 0, false)?).await;
        }
        Ok(())
    }

    /// Returns the destination of answers; the first caller opens it.
    async fn room(&self, mdns: &Mdns) -> Result<Arc<ReplyQueue>> {
        let mut answering = self.answering.lock().await;
        if let Some(open) = &*answering {
            return Ok(open.room.clone());
        }
        let interfaces = mdns.interfaces_or_default();
        let socket = socket::answering(&interfaces, mdns.port).map_err(polyrpc_core::Status::from_error)?;
        let room = Arc::new(ReplyQueue { socket, interfaces, port: mdns.port, names: mdns.names.clone() });
        let task = tokio::spawn(answer(room.clone(), self.entries.clone())).into();
        *answering = Some(AnnouncerTask { room: room.clone(), _task: task });
        Ok(room)
    }
}

impl ReplyQueue {
    async fn send_packet(&self, packet: &[u8]) {
        socket::send_to_all(&self.socket, &self.interfaces, self.port, packet).await;
    }
}

/// Answers queries.
async fn answer(room: Arc<ReplyQueue>, entries: Arc<Entries>) {
    let mut buffer = vec![0; socket::MAX_PACKET_SIZE];
    loop {
        let Ok((length, querier)) = room.socket.recv_from(&mut buffer).await else {
            tokio::time::sleep(socket::ERROR_PAUSE).await;
            continue;
        };
        let query = buffer.get(..length).and_then(|packet| Query::read(packet, &room.names));
        if let Some(query) = query {
            answer_one(&room, &entries, &query, querier).await;
        }
    }
}

async fn answer_one(room: &ReplyQueue, entries: &Entries, query: &Query, querier: SocketAddr) {
    let entries: Vec<_> = entries.lock().values().cloned().collect();
    // A querier at another port does not receive multicast answers (RFC 6762, section 6.7).
    let is_alone = query.wants_unicast || querier.port() != room.port;
    for entry in entries {
        let id = if is_alone { query.id } else { 0 };
        let Ok(packet) = packet::announcement(&room.names, &entry, id, true) else { continue };
        match is_alone {
            true => drop(room.socket.send_to(&packet, querier).await),
            false => room.send_packet(&packet).await,
        }
    }
}
