use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use polyrpc_core::{Compression, Format, Status};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Client, Result, split};
use crate::call::{CancelHandle, Request, Response};
use crate::codec::Body;

/// Builder of a call with plain types and call options; created by [`Client::request`].
///
/// Options that are not set have the client's defaults.
#[must_use = "nothing is sent until `call`, `send` or `oneway` is called"]
pub struct CallBuilder<'a> {
    client: &'a Client,
    target: &'a str,
    request: Request<()>,
}

impl<'a> CallBuilder<'a> {
    pub(super) fn new(client: &'a Client, target: &'a str) -> Self {
        Self { client, target, request: Request::new(()) }
    }

    /// Sets the timeout, which is also sent to the server. With zero the call fails with `deadline_exceeded` before
    /// anything is sent.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.request = self.request.with_timeout(timeout);
        self
    }

    /// Sets a user field, metadata entry or header.
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.request = self.request.with_metadata(key, value);
        self
    }

    /// Sends an attachment next to the arguments (baidu_std).
    pub fn attachment(mut self, attachment: impl Into<Bytes>) -> Self {
        self.request = self.request.with_attachment(attachment);
        self
    }

    /// Sets the key by which a client of several servers picks one, if it balances by a hash (brpc's request code).
    pub fn key(mut self, key: u64) -> Self {
        self.request = self.request.with_key(key);
        self
    }

    /// Sets the credential to send instead of the client's own.
    pub fn credential(mut self, credential: impl Into<Bytes>) -> Self {
        self.request = self.request.with_credential(credential);
        self
    }

    /// Encodes the arguments in this format.
    pub fn format(mut self, format: Format) -> Self {
        self.request = self.request.with_format(format);
        self
    }

    /// Compresses the arguments.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.request = self.request.with_compression(compression);
        self
    }

    /// Waits until the server is reachable, up to the deadline, instead of failing at once.
    pub fn wait_for_ready(mut self) -> Self {
        self.request = self.request.with_wait_for_ready();
        self
    }

    /// Marks the call as safe to execute twice.
    pub fn idempotent(mut self) -> Self {
        self.request = self.request.with_idempotent();
        self
    }

    /// Lets this handle cancel the call.
    pub fn cancel(mut self, cancel: &CancelHandle) -> Self {
        self.request = self.request.with_cancel(cancel);
        self
    }

    /// Makes the call and waits for its result, as [`Client::call`] does.
    ///
    /// # Errors
    ///
    /// As [`Client::call`].
    ///
    /// # Cancel safety
    ///
    /// As [`Client::call`].
    pub async fn call<Resp: DeserializeOwned + 'static>(
        self,
        arguments: &(impl Serialize + ?Sized),
    ) -> Result<Resp> {
        Ok(self.send(arguments).await?.message)
    }

    /// Makes the call and waits for its full response: result, metadata, trailers and attachment.
    ///
    /// # Errors
    ///
    /// As [`Client::call`].
    ///
    /// # Cancel safety
    ///
    /// As [`Client::call`].
    pub async fn send<Resp: DeserializeOwned + 'static>(
        self,
        arguments: &(impl Serialize + ?Sized),
    ) -> Result<Response<Resp>> {
        Ok(self.call_encoded(arguments).await?.read_plain()?)
    }

    /// Sends the call without waiting for a result.
    ///
    /// # Errors
    ///
    /// If the call could not be sent. Failures of the server are not reported.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the call unsent.
    pub async fn oneway(mut self, arguments: &(impl Serialize + ?Sized)) -> Result<()> {
        self.request = self.request.with_oneway();
        self.call_encoded(arguments).await?;
        Ok(())
    }

    async fn call_encoded(self, arguments: &(impl Serialize + ?Sized)) -> Result<Response<Body>, Status> {
        let Self { client, target, request: Request { options, .. } } = self;
        let body = client.defaults.encode_plain(arguments, &options)?;
        let (service, method) = split(target);
        client.call_encoded(service, method, body, options).await
    }
}

impl fmt::Debug for CallBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallBuilder")
            .field("target", &self.target)
            .field("options", &self.request.options)
            .finish_non_exhaustive()
    }
}
