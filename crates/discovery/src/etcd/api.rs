//! Requests to etcd, by our own gRPC (`proto/etcd/rpc.proto`).

use std::fmt;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use polyrpc::client::Result;
use polyrpc::client::balance::Policy;
use polyrpc::client::{Request, Response};
use polyrpc::discovery::{Instance, List};
use polyrpc::streaming::Sender;
use polyrpc::{Client, Code, Status, Streaming};
use tokio::time::timeout;

use super::proto::etcdserverpb::{
    AuthClient, AuthenticateRequest, DeleteRangeRequest, KVClient, LeaseClient, LeaseGrantRequest,
    LeaseKeepAliveRequest, LeaseKeepAliveResponse, RangeRequest, RangeResponse, TxnRequest, WatchClient,
    WatchCreateRequest, WatchRequest, WatchResponse,
};

/// Connections to a cluster, which stay with one of its servers. After a failure, callers create another one.
#[derive(Clone)]
pub(super) struct Api {
    client: Client,
    user: Option<(String, String)>,
    /// Authentication token of the user.
    token: Option<String>,
}

impl Api {
    /// Connects to any reachable server.
    pub(super) async fn connect(
        endpoints: &[String],
        user: Option<(String, String)>,
    ) -> Result<Self, Status> {
        let servers = endpoints.iter().map(|endpoint| server(endpoint)).collect::<Result<Vec<_>, _>>()?;
        let client = Client::builder("grpc://etcd")
            .discover(List::new(servers))
            .balance(Policy::sticky(Policy::random()))
            // Half of this time is left for another server if one does not accept connections.
            .timeout(RESPONSE_TIMEOUT)
            // Notices a dead server, also while nothing changes.
            .keepalive(KEEPALIVE_INTERVAL);
        let mut api = Self { client: client.build().map_err(failed)?, user, token: None };
        with_timeout(api.authenticate()).await?;
        Ok(api)
    }

    /// Lists the keys with this prefix.
    pub(super) async fn list(&mut self, prefix: &str) -> Result<RangeResponse, Status> {
        let kv = KVClient::new(self.client.clone());
        let range =
            RangeRequest { key: prefix.to_owned().into(), range_end: prefix_end(prefix.as_bytes()).into() };
        self.query(range, |request| kv.range_with(request)).await
    }

    pub(super) async fn delete(&mut self, key: String) -> Result<(), Status> {
        let kv = KVClient::new(self.client.clone());
        let range = DeleteRangeRequest { key: key.into() };
        self.query(range, |request| kv.delete_range_with(request)).await.map(drop)
    }

    pub(super) async fn transact(&mut self, transaction: TxnRequest) -> Result<(), Status> {
        let kv = KVClient::new(self.client.clone());
        self.query(transaction, |request| kv.txn_with(request)).await.map(drop)
    }

    /// Watches the changes below these prefixes from this revision on.
    pub(super) async fn watch(
        &self,
        prefixes: &[String],
        revision: i64,
    ) -> Result<Streaming<WatchResponse>, Status> {
        let watches: Vec<_> = prefixes.iter().map(|prefix| Ok(watch(prefix, revision))).collect();
        // No other request is sent, but the request stream stays open, since its end could end the watch.
        let requests = Streaming::from_stream(stream::iter(watches).chain(stream::pending()));
        let watch = WatchClient::new(self.client.clone());
        Ok(with_timeout(watch.watch_with(self.with_token(requests))).await?.message)
    }

    /// Grants a lease with this time to live.
    pub(super) async fn grant(&mut self, seconds: i64) -> Result<KeepAlive, Status> {
        let lease = LeaseClient::new(self.client.clone());
        let granted =
            self.query(LeaseGrantRequest { TTL: seconds }, |request| lease.lease_grant_with(request)).await?;
        let (renewals, requests) = Streaming::channel(1);
        let answers = with_timeout(async {
            // etcd does not start its response before the first request.
            renewals.send(LeaseKeepAliveRequest { ID: granted.ID }).await?;
            Ok(lease.lease_keep_alive_with(self.with_token(requests)).await?.message)
        })
        .await?;
        let mut kept = KeepAlive { id: granted.ID, renewals, answers };
        match with_timeout(kept.is_renewed()).await? {
            true => Ok(kept),
            false => Err(failed("the lease expired at once")),
        }
    }

    /// Makes a call, and repeats it once if the token is rejected: a simple token expires after five minutes without
    /// use (`--auth-token-ttl`), and when the user is changed.
    async fn query<Req: Clone, Resp, Fut>(
        &mut self,
        question: Req,
        query: impl Fn(Request<Req>) -> Fut,
    ) -> Result<Resp, Status>
    where
        Fut: Future<Output = Result<Response<Resp>>>,
    {
        let answer = with_timeout(async {
            match query(self.with_token(question.clone())).await {
                Err(error) if error.code() == Code::Unauthenticated && self.user.is_some() => {
                    self.authenticate().await?;
                    query(self.with_token(question)).await
                }
                answered => answered,
            }
        });
        Ok(answer.await?.message)
    }

    async fn authenticate(&mut self) -> Result<()> {
        let Some((name, password)) = self.user.clone() else { return Ok(()) };
        // The last token would be rejected.
        self.token = None;
        let auth = AuthClient::new(self.client.clone());
        let request = self.with_token(AuthenticateRequest { name, password });
        self.token = Some(auth.authenticate_with(request).await?.message.token);
        Ok(())
    }

    fn with_token<T>(&self, message: T) -> Request<T> {
        // Otherwise a partitioned server would continue to answer from its old state.
        let request = Request::new(message).with_metadata("hasleader", "true");
        match &self.token {
            Some(token) => request.with_metadata("token", token.clone()),
            None => request,
        }
    }
}

/// Lease, and the stream on which it is renewed.
pub(super) struct KeepAlive {
    pub(super) id: i64,
    renewals: Sender<LeaseKeepAliveRequest>,
    answers: Streaming<LeaseKeepAliveResponse>,
}

impl KeepAlive {
    /// Renews the lease; `false` if it no longer exists.
    pub(super) async fn renew(&mut self) -> Result<bool, Status> {
        with_timeout(async {
            self.renewals.send(LeaseKeepAliveRequest { ID: self.id }).await?;
            self.is_renewed().await
        })
        .await
    }

    async fn is_renewed(&mut self) -> Result<bool> {
        Ok(self.answers.message().await?.is_some_and(|answer| answer.TTL > 0))
    }
}

fn watch(prefix: &str, start_revision: i64) -> WatchRequest {
    let range_end = prefix_end(prefix.as_bytes()).into();
    let create = WatchCreateRequest { key: prefix.to_owned().into(), range_end, start_revision };
    WatchRequest { request_union: create.into() }
}

/// Returns the first key after all keys with this prefix.
fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut key = prefix.to_vec();
    while let Some(last) = key.pop() {
        if let Some(next) = last.checked_add(1) {
            key.push(next);
            return key;
        }
    }
    // There is none: up to the last key (`rpc.proto`, `RangeRequest.range_end`).
    vec![0]
}

fn server(endpoint: &str) -> Result<Instance, Status> {
    let (scheme, authority) = endpoint.split_once("://").unwrap_or(("http", endpoint));
    if scheme != "http" {
        return Err(failed(format_args!("`{endpoint}`: expected host:port or http://host:port")));
    }
    authority.trim_end_matches('/').parse().map_err(failed)
}

/// Awaits a response, at most for the timeout.
async fn with_timeout<T>(request: impl Future<Output = Result<T>>) -> Result<T, Status> {
    match timeout(RESPONSE_TIMEOUT, request).await {
        Ok(answer) => answer.map_err(failed),
        Err(_) => Err(failed("no response in time")),
    }
}

#[cold]
pub(super) fn failed(why: impl fmt::Display) -> Status {
    Status::unavailable(format!("etcd: {why}"))
}

/// Timeout of a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Keepalive interval of a connection. etcd closes a connection with pings more often than every 5 s
/// (`--grpc-keepalive-min-time`).
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_end_is_the_first_key_after_the_prefix() {
        for (prefix, end) in [
            (&b"/base/"[..], &b"/base0"[..]),
            (b"a\xff", b"b"),
            (b"a\xff\xff", b"b"),
            (b"\xff\xff", b"\0"),
            (b"", b"\0"),
        ] {
            assert_eq!(prefix_end(prefix), end, "{}", prefix.escape_ascii());
        }
    }

    #[test]
    fn server_is_parsed_as_host_and_port() {
        for endpoint in ["h:2379", "http://h:2379", "http://h:2379/", "[::1]:2379"] {
            assert!(server(endpoint).is_ok(), "{endpoint}");
        }
        for endpoint in ["", "h", "https://h:2379", "ftp://h:1"] {
            assert!(server(endpoint).is_err(), "{endpoint}");
        }
    }
}
