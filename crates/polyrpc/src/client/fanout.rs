//! One call to all servers of a channel: rpcx's `Broadcast`, `Fork` and `Inform`.

use std::fmt;
use std::sync::Arc;

use futures_util::future::{BoxFuture, join_all};
use polyrpc_core::Status;

use super::call_defaults::{CallDefaults, deadline};
use super::cluster::{Channel, EndpointInfo, SingleEndpoint};
use super::combo::{Combo, CompletionBounds, PartOutcome, gather, keep_first};
use super::{Backend, Client};
use crate::call::{OutgoingCall, Response};
use crate::client::Result;
use crate::codec::Body;
use crate::discovery::Instance;

impl Client {
    /// Returns the same client, whose every call goes to all servers: rpcx's `Broadcast`. Stubs work with it as with
    /// any other.
    ///
    /// A call succeeds only if it succeeds on all servers, and returns the first reply. The first failure ends it and
    /// cancels the calls in flight. Nothing is retried. Servers that are considered unhealthy are called too; a server
    /// that leaves the registry before it could be called is skipped.
    ///
    /// Layers wrap the whole call. A client of one server, or of other clients, is returned unchanged. Streaming calls
    /// are rejected.
    ///
    /// ```no_run
    /// # async fn example() -> polyrpc::Result<()> {
    /// use polyrpc::Client;
    ///
    /// let client = Client::new("rpcx+list://10.0.0.1:8972,10.0.0.2:8972")?;
    /// let () = client.broadcast().call("Cache/Forget", &"user:7").await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn broadcast(&self) -> Self {
        self.to_all(CompletionBounds { fail: Some(1), success: None })
    }

    /// Returns the same client, whose every call goes to all servers until one succeeds: rpcx's `Fork`. Stubs work with
    /// it as with any other.
    ///
    /// The first success is the reply, and the other calls are cancelled. A call fails if it fails on all servers.
    /// Otherwise it is like [`broadcast`](Self::broadcast).
    #[must_use]
    pub fn fork(&self) -> Self {
        self.to_all(CompletionBounds { fail: None, success: Some(1) })
    }

    /// Makes calls to each server and waits for all of them: rpcx's `Inform`. Returns each server with its own reply or
    /// failure, in the order of the servers' addresses; the server is `None` if the client was built without discovery.
    ///
    /// `call` makes the calls with a client of that one server. They are not retried, and this client's layers wrap
    /// each of them.
    ///
    /// ```no_run
    /// # async fn example() -> polyrpc::Result<()> {
    /// use polyrpc::Client;
    ///
    /// let client = Client::new("rpcx+list://10.0.0.1:8972,10.0.0.2:8972")?;
    /// let receipts = client.inform(|server| async move { server.call::<u64>("Cache/Size", &()).await }).await?;
    /// for (server, reply) in receipts {
    ///     println!("{server:?}: {reply:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If no server is known within the client's timeout. The failure of a server is in its pair.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels all calls in flight.
    pub async fn inform<T, F>(&self, call: impl Fn(Self) -> F) -> Result<Vec<(Option<Instance>, Result<T>)>>
    where
        F: Future<Output = Result<T>>,
    {
        let Backend::Channel(channel) = &self.backend else {
            return Ok(vec![(None, call(self.clone()).await)]);
        };
        let deadline = deadline(self.defaults.timeout)?;
        let servers = channel.single_endpoints(deadline, false).await?;
        let receipts = servers.into_iter().map(|server| {
            let instance = Some(server.instance().clone());
            let reply = call(Self { backend: Backend::Server(server), ..self.clone() });
            async move { (instance, reply.await) }
        });
        Ok(join_all(receipts).await)
    }

    fn to_all(&self, bounds: CompletionBounds) -> Self {
        let Backend::Channel(channel) = &self.backend else { return self.clone() };
        let all = Broadcast { channel: channel.clone(), defaults: self.defaults.clone(), bounds };
        Self { backend: Backend::Combo(Arc::new(all)), ..self.clone() }
    }

    /// Returns the same client of this server only, without layers, since they wrap it already.
    fn of_endpoint(server: Arc<SingleEndpoint>, defaults: Arc<CallDefaults>) -> Self {
        Self { backend: Backend::Server(server), defaults, layers: Default::default() }
    }
}

/// All servers of a channel.
struct Broadcast {
    channel: Arc<Channel>,
    defaults: Arc<CallDefaults>,
    bounds: CompletionBounds,
}

impl Broadcast {
    async fn call(&self, mut call: OutgoingCall<'_>) -> Result<Response<Body>, Status> {
        let deadline = deadline(call.options.timeout)?;
        let servers = self.channel.single_endpoints(deadline, call.options.wait_for_ready).await?;
        // The call may have waited for the servers.
        call.set_deadline(deadline);
        let parts = servers.into_iter().map(|server| {
            let (client, call) = (Client::of_endpoint(server.clone(), self.defaults.clone()), call.clone());
            async move {
                let result = client.send(call).await;
                let left = result.as_ref().is_err_and(|status| server.has_left(status));
                PartOutcome { of: server, result: (!left).then_some(result) }
            }
        });
        gather(parts, self.bounds, keep_first, |server| server.instance().to_string()).await
    }
}

impl Combo for Broadcast {
    fn call<'a>(&'a self, call: OutgoingCall<'a>) -> BoxFuture<'a, Result<Response<Body>, Status>> {
        Box::pin(self.call(call))
    }

    fn endpoints(&self) -> Vec<EndpointInfo> {
        self.channel.endpoint_infos()
    }
}

impl fmt::Debug for Broadcast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broadcast").field("channel", &self.channel).field("bounds", &self.bounds).finish()
    }
}
