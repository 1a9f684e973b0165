//! Registers servers: locks their keys with sessions, and renews those.

use std::sync::PoisonError;
use std::time::Duration;

use ::http::StatusCode;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use polyrpc::Status;
use polyrpc::client::Result;
use polyrpc::discovery::{Advertisement, Attributes, Registrar};
use serde::{Deserialize, Serialize};

use super::{Keys, Pair};
use crate::http::RESPONSE_TIMEOUT;
use crate::lenient_list::LenientList;
use crate::rpcx_tree::attributes;
use crate::url_parts::path;

impl Registrar for Keys {
    fn publish<'a>(&'a self, entry: &'a Advertisement) -> BoxFuture<'a, Result<()>> {
        async { Ok(self.register(entry).await?) }.boxed()
    }

    fn withdraw<'a>(&'a self, entry: &'a Advertisement) -> BoxFuture<'a, Result<()>> {
        async { Ok(self.deregister(entry).await?) }.boxed()
    }

    fn current_attributes<'a>(
        &'a self,
        entry: &'a Advertisement,
    ) -> BoxFuture<'a, Result<Option<Attributes>>> {
        async {
            let key = format!("{}/{}", self.service_path(&entry.service), entry.instance);
            Ok(self
                .look_up(&key)
                .await?
                .and_then(|pair| pair.decode_value())
                .map(|decoded_value| attributes(&decoded_value)))
        }
        .boxed()
    }
}

impl Keys {
    async fn register(&self, entry: &Advertisement) -> Result<(), Status> {
        let directory = self.service_path(&entry.service);
        let key = format!("{directory}/{}", entry.instance);
        let value = entry.instance.attributes.to_string();
        if let Some(session) = self.session(&key) {
            if self.renew(&session).await? && self.keep(&key, &session, &value).await? {
                return Ok(());
            }
            self.forget(&key);
        }
        if !self.base.is_empty() {
            self.put(&self.base, "rpcx_path").await?;
        }
        self.put(&directory, &entry.service).await?;
        self.register_with_new_session(key, &value, entry.ttl).await
    }

    /// Writes a key that is held by this session, if it has changed or was lost: a write needs the consensus of
    /// Consul's servers, a read does not. `false` if the session does not hold it any more.
    async fn keep(&self, key: &str, session: &str, value: &str) -> Result<bool, Status> {
        let there = self.look_up(key).await?;
        if there.is_some_and(|pair| pair.session.as_deref() == Some(session) && pair.has_value(value)) {
            return Ok(true);
        }
        self.acquire(key, session, value).await
    }

    /// Registers a key that is not registered by this process. A present holder is an earlier process: an address has
    /// one server, so that process is gone.
    async fn register_with_new_session(&self, key: String, value: &str, ttl: Duration) -> Result<(), Status> {
        let session = self.open(&key, ttl).await?;
        for _ in 0..MAX_ATTEMPTS {
            if self.acquire(&key, &session, value).await? {
                self.sessions.lock().unwrap_or_else(PoisonError::into_inner).insert(key, session);
                return Ok(());
            }
            if let Some(other) = self.look_up(&key).await?.and_then(|pair| pair.session) {
                self.end(&other).await?;
            }
            // Consul keeps a key locked for this delay after its session has ended.
            tokio::time::sleep(LOCK_DELAY * 10).await;
        }
        self.end(&session).await?;
        Err(Status::aborted(format!("Consul does not release the key {key}")))
    }

    async fn deregister(&self, entry: &Advertisement) -> Result<(), Status> {
        let key = format!("{}/{}", self.service_path(&entry.service), entry.instance);
        let action = format!("cannot delete Consul's key {key}");
        self.consul.delete(&format!("/kv/{}", path(&key))).await?.check_success(&action)?;
        if let Some(session) = self.forget(&key) {
            self.end(&session).await?;
        }
        Ok(())
    }

    async fn put(&self, key: &str, value: &str) -> Result<(), Status> {
        let flags = Attributes::new().with("flags", FLAGS);
        let answer = self.consul.put(&format!("/kv/{}", path(key)), flags, value.to_owned()).await?;
        answer.check_success(&format!("cannot write Consul's key {key}"))
    }

    async fn acquire(&self, key: &str, session: &str, value: &str) -> Result<bool, Status> {
        let query = Attributes::new().with("acquire", session).with("flags", FLAGS);
        let answer = self.consul.put(&format!("/kv/{}", path(key)), query, value.to_owned()).await?;
        // Consul's reply if the session has just ended.
        if answer.status.is_server_error() && contains(&answer.body, b"invalid session") {
            return Ok(false);
        }
        answer.json(&format!("cannot acquire Consul's key {key}"))
    }

    async fn look_up(&self, key: &str) -> Result<Option<Pair>, Status> {
        let answer =
            self.consul.get(&format!("/kv/{}", path(key)), Attributes::new(), RESPONSE_TIMEOUT).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let pairs: LenientList<Pair> = answer.json(&format!("cannot read Consul's key {key}"))?;
        Ok(pairs.items.into_iter().next())
    }

    async fn open(&self, key: &str, ttl: Duration) -> Result<String, Status> {
        // Consul ends a session after up to twice its time-to-live, and accepts 10 s to 24 h (`structs.Session`).
        let ttl = (ttl / 2).clamp(Duration::from_secs(10), Duration::from_hours(24));
        let wanted = NewSession {
            name: key,
            ttl: format!("{}s", ttl.as_secs()),
            behavior: "delete",
            lock_delay: format!("{}ms", LOCK_DELAY.as_millis()),
        };
        let wanted = serde_json::to_vec(&wanted).map_err(|error| Status::internal(error.to_string()))?;
        let answer = self.consul.put("/session/create", Attributes::new(), wanted).await?;
        let session: Session = answer.json("cannot open a Consul session")?;
        Ok(session.id)
    }

    /// Renews the session; `false` if it no longer exists.
    async fn renew(&self, session: &str) -> Result<bool, Status> {
        let answer =
            self.consul.put(&format!("/session/renew/{}", path(session)), Attributes::new(), "").await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(false);
        }
        answer.check_success("cannot renew a Consul session").map(|()| true)
    }

    async fn end(&self, session: &str) -> Result<(), Status> {
        let answer =
            self.consul.put(&format!("/session/destroy/{}", path(session)), Attributes::new(), "").await?;
        answer.check_success("cannot end a Consul session")
    }

    fn session(&self, key: &str) -> Option<String> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    fn forget(&self, key: &str) -> Option<String> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).remove(key)
    }
}

fn contains(body: &[u8], words: &[u8]) -> bool {
    body.windows(words.len()).any(|window| window == words)
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct NewSession<'a> {
    name: &'a str,
    #[serde(rename = "TTL")]
    ttl: String,
    behavior: &'static str,
    lock_delay: String,
}

#[derive(Debug, Deserialize)]
struct Session {
    #[serde(rename = "ID")]
    id: String,
}

/// As in libkv.
const LOCK_DELAY: Duration = Duration::from_millis(1);
const MAX_ATTEMPTS: u32 = 5;
/// Flags of Consul's own locks, and of libkv's keys: 0x2ddccbc058a50c18.
const FLAGS: &str = "3304740253564472344";
