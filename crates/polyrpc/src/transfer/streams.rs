use std::fmt;
use std::sync::Arc;

use super::messages::{Grant, TransferRequest};
use super::tokens::DataConnections;
use super::{Authorize, ByteStream, Request, Work};
use crate::Result;
use crate::call::Context;
use crate::codec::Serde;
use crate::service::ServiceBuilder;

/// Byte streams that clients may open: rpcx's stream service.
///
/// ```
/// # use polyrpc::{Server, Status};
/// use polyrpc::transfer::{ByteStream, Streams};
///
/// let streams = Streams::new(|stream: ByteStream, request| async move {
///     let (mut from, mut to) = tokio::io::split(stream);
///     tokio::io::copy(&mut from, &mut to).await?;
///     Ok(())
/// })
/// .accept(|_cx, request| match request.metadata.contains_key("room") {
///     true => Ok(()),
///     false => Err(Status::invalid_argument("which room?").into()),
/// });
/// let server = Server::new().streams(streams);
/// ```
#[must_use]
pub struct Streams {
    service: String,
    handler: Handler,
    authorize: Option<Authorize>,
    advertised: Option<Arc<str>>,
}

type Handler = Arc<dyn Fn(ByteStream, Request) -> Work + Send + Sync>;

impl Streams {
    /// Creates the service with this handler. The stream ends with the handler's future: the client sees the end of the
    /// bytes, or a broken connection if the handler failed.
    pub fn new<F, Fut>(handler: F) -> Self
    where
        F: Fn(ByteStream, Request) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        Self {
            service: SERVICE.to_owned(),
            handler: Arc::new(move |stream, request| Box::pin(handler(stream, request))),
            authorize: None,
            advertised: None,
        }
    }

    /// Sets a check of each request; its error is the call's error.
    pub fn accept(
        mut self,
        authorize: impl Fn(&Context, &Request) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.authorize = Some(Arc::new(authorize));
        self
    }

    /// Directs clients to this `host:port` instead of the address that they called: a further address at which the
    /// server [listens](crate::server::BoundServer::and), or a proxy before it.
    pub fn advertise(mut self, address: impl Into<Arc<str>>) -> Self {
        self.advertised = Some(address.into());
        self
    }

    /// Sets the service name. Default: `_streamservice`.
    pub fn service_name(mut self, service: impl Into<String>) -> Self {
        self.service = service.into();
        self
    }

    pub(super) fn into_service(self, data: &Arc<DataConnections>) -> ServiceBuilder {
        let data = data.clone();
        ServiceBuilder::new(self.service.clone()).method::<Serde, TransferRequest, Grant, _, _>(
            "Stream",
            move |cx: Context, transfer_request: TransferRequest| {
                let granted = self.grant(&data, &cx, transfer_request);
                async move { (cx, granted) }
            },
        )
    }

    fn grant(
        &self,
        data: &DataConnections,
        cx: &Context,
        transfer_request: TransferRequest,
    ) -> Result<Grant> {
        let metadata = transfer_request.meta.unwrap_or_default();
        let request = Request { name: String::new(), size: None, metadata, peer: cx.peer().clone() };
        if let Some(authorize) = &self.authorize {
            authorize(cx, &request)?;
        }
        let handler = self.handler.clone();
        let start = Box::new(move |stream| handler(stream, request));
        Ok(data.grant(cx, self.advertised.as_ref(), start)?)
    }
}

/// Name in rpcx (rpcx `share/share.go`).
pub(super) const SERVICE: &str = "_streamservice";

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams").field("service", &self.service).finish_non_exhaustive()
    }
}
