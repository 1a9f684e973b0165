//! One call to all servers of a channel: rpcx's `Broadcast`, `Fork` and `Inform`.

use std::fmt;
use std::sync::Arc;

use futures_util::future::{BoxFuture, join_all};
use polyrpc_core::Status;

use super::call_defaults::{CallDefaults, deadline};
use super::cluster::{Channel, EndpointInfo, SingleEndpoint};
use super::combo::{Combo, CompletionBounds, PartOutcome, gather, keep_first};
use super::{Client, Transport};
use crate::call::{OutgoingCall, Response};
use crate::client::Result;
use crate::codec::Body;
use crate::discovery::Instance;

impl Client {
    /// The same client, whose every call goes to all servers: rpcx's `Broadcast`. Stubs call it as any other.
    ///
    /// A call succeeds only if it does on all servers, and gives the answer that came first. The first failure ends it:
    /// calls under way are cancelled. Nothing is tried again. Servers that are thought to be down are called too; one
    /// that the registry takes away before it could be called is left out.
    ///
    /// Layers stand around the whole. A client of one server, or of other clients, stays what it is. Calls with several
    /// messages in a direction are refused.
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

    /// The same client, whose every call goes to all servers until one succeeds: rpcx's `Fork`. Stubs call it as any
    /// other.
    ///
    /// The first success is the answer, and the other calls are cancelled. A call fails if it does on all servers.
    /// Otherwise it is as [`broadcast`](Self::broadcast).
    #[must_use]
    pub fn fork(&self) -> Self {
        self.to_all(CompletionBounds { fail: None, success: Some(1) })
    }

    /// Makes calls to each server and waits for all of them: rpcx's `Inform`. There is a receipt for each server, in the
    /// order of their addresses, with its own answer or failure.
    ///
    /// What is called, `call` says, with a client of that one server; calls made by it are as any other, but not tried
    /// again, and this client's layers stand around each.
    ///
    /// ```no_run
    /// # async fn example() -> polyrpc::Result<()> {
    /// use polyrpc::Client;
    ///
    /// let client = Client::new("rpcx+list://10.0.0.1:8972,10.0.0.2:8972")?;
    /// let receipts = client.inform(|server| async move { server.call::<u64>("Cache/Size", &()).await }).await?;
    /// for receipt in receipts {
    ///     println!("{:?}: {:?}", receipt.instance, receipt.reply);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When no server is known within the client's time-out. What fails on a server is in its receipt.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels all calls under way.
    pub async fn inform<T, F>(&self, call: impl Fn(Self) -> F) -> Result<Vec<FanoutReply<T>>>
    where
        F: Future<Output = Result<T>>,
    {
        let Transport::Channel(channel) = &self.transport else {
            return Ok(vec![FanoutReply { instance: None, reply: call(self.clone()).await }]);
        };
        let deadline = deadline(self.defaults.timeout)?;
        let servers = channel.single_endpoints(deadline, false).await?;
        let receipts = servers.into_iter().map(|server| {
            let instance = Some(server.instance().clone());
            let reply = call(Self { transport: Transport::Server(server), ..self.clone() });
            async move { FanoutReply { instance, reply: reply.await } }
        });
        Ok(join_all(receipts).await)
    }

    fn to_all(&self, bounds: CompletionBounds) -> Self {
        let Transport::Channel(channel) = &self.transport else { return self.clone() };
        let all = Broadcast { channel: channel.clone(), defaults: self.defaults.clone(), bounds };
        Self { transport: Transport::Combo(Arc::new(all)), ..self.clone() }
    }

    /// The same client of this server alone; layers are around it already.
    fn at(server: Arc<SingleEndpoint>, defaults: Arc<CallDefaults>) -> Self {
        Self { transport: Transport::Server(server), defaults, layers: Default::default() }
    }
}

/// What became of a call on one server.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct FanoutReply<T> {
    /// The server; `None` from a client that was not built to find its servers.
    pub instance: Option<Instance>,
    /// Its answer, or why there is none.
    pub reply: Result<T>,
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
        // The servers may have been waited for.
        call.end_by(deadline);
        let parts = servers.into_iter().map(|server| {
            let (client, call) = (Client::at(server.clone(), self.defaults.clone()), call.clone());
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
        self.channel.facts()
    }
}

impl fmt::Debug for Broadcast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("All").field("channel", &self.channel).field("bounds", &self.bounds).finish()
    }
}
