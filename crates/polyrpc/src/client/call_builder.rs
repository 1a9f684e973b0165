use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use polyrpc_wire::{Compression, Format};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::cancel::Cancel;
use super::request::{Options, Response};
use super::{Client, Result, split};

/// A call with plain types that says more than its arguments; made by [`Client::request`].
///
/// What is not said is as the client was built.
#[must_use = "nothing is sent before it is told how to end: `call`, `send` or `oneway`"]
pub struct CallBuilder<'a> {
    client: &'a Client,
    target: &'a str,
    options: Options,
}

impl<'a> CallBuilder<'a> {
    pub(super) fn new(client: &'a Client, target: &'a str) -> Self {
        Self { client, target, options: Options::default() }
    }

    /// Waits no longer than this; the server is told.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = Some(timeout);
        self
    }

    /// Sets a user field, metadata entry or header.
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.options.metadata.insert(key.into(), value);
        self
    }

    /// Sends bytes beside the arguments (baidu_std).
    pub fn attachment(mut self, attachment: impl Into<Bytes>) -> Self {
        self.options.attachment = attachment.into();
        self
    }

    /// What calls have in common that are to go to the same server, where the client has several and balances by a hash
    /// (brpc's request code).
    pub fn key(mut self, key: u64) -> Self {
        self.options.key = Some(key);
        self
    }

    /// Proves who calls, in place of the client's own credential.
    pub fn credential(mut self, credential: impl Into<Bytes>) -> Self {
        self.options.credential = Some(credential.into());
        self
    }

    /// Writes the arguments in this format.
    pub fn format(mut self, format: Format) -> Self {
        self.options.format = Some(format);
        self
    }

    /// Compresses the arguments.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.options.compression = Some(compression);
        self
    }

    /// Waits, as long as the call may wait, until the server can be reached, instead of failing at once.
    pub fn wait_for_ready(mut self) -> Self {
        self.options.wait_for_ready = true;
        self
    }

    /// Says that the call may be executed twice with no harm.
    pub fn idempotent(mut self) -> Self {
        self.options.idempotent = true;
        self
    }

    /// Lets this handle cancel the call.
    pub fn cancel(mut self, cancel: &Cancel) -> Self {
        self.options.cancel = Some(cancel.clone());
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

    /// Makes the call and waits for its result and what came beside it: metadata, trailers, an attachment.
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
        let Self { client, target, options } = self;
        let body = client.defaults.encode_plain(arguments, &options)?;
        let (service, method) = split(target);
        Ok(client.exchange(service, method, body, options).await?.read_plain()?)
    }

    /// Sends the call and wants no result: it ends when it is sent.
    ///
    /// # Errors
    ///
    /// Why it could not be sent. How the server fares nobody learns.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the call unsent.
    pub async fn oneway(mut self, arguments: &(impl Serialize + ?Sized)) -> Result<()> {
        self.options.oneway = true;
        let Self { client, target, options } = self;
        let body = client.defaults.encode_plain(arguments, &options)?;
        let (service, method) = split(target);
        client.exchange(service, method, body, options).await?;
        Ok(())
    }
}

impl fmt::Debug for CallBuilder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallBuilder")
            .field("target", &self.target)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
