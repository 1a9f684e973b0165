use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use polyrpc_core::{Format, Head, Reply, Status};
use polyrpc_payload::schema;

use crate::Failure;
use crate::call::streaming::{Incoming, Outgoing};
use crate::call::{Context, Outcome, OutcomeKind, ResponseFuture, StreamType};
use crate::codec::{Body, Codec, TypeSchema};
use crate::propagation::{Phase, phase_ended};

/// A method with its message types erased, as the router stores it.
///
/// Message types are erased nowhere else on a call's path; services, layers and sessions are trait objects elsewhere.
pub(crate) trait Method: Send + Sync {
    /// Decodes the request and starts to handle it.
    ///
    /// The request is decoded before this returns, so that a body in the receive buffer need not outlive it.
    ///
    /// # Errors
    ///
    /// If the request cannot be decoded: the handler did not run.
    fn start(&self, cx: Context, body: Body) -> Result<ResponseFuture, Status>;

    /// Returns whether the method may block: it then runs on the blocking pool, off the connection's task. A streaming
    /// method may not.
    fn is_blocking(&self) -> bool {
        false
    }

    /// Returns whether decoding this long request takes much longer than copying it.
    fn decodes_slowly(&self, _body: &Body) -> bool {
        false
    }

    /// Returns the directions in which it streams messages.
    fn stream_type(&self) -> StreamType {
        StreamType::UNARY
    }

    /// Checks that its messages can be carried in a format, as far as that is known before there are any. A server
    /// checks it when it is bound.
    ///
    /// # Errors
    ///
    /// If they cannot be carried in it.
    fn check(&self, _format: Format) -> Result<(), Status> {
        Ok(())
    }

    /// Returns the schemas of its requests and replies, as far as they are known.
    fn type_schemas(&self) -> (TypeSchema, TypeSchema) {
        <_>::default()
    }

    /// Starts a call of a streaming method.
    ///
    /// For a method with a single request, `incoming` contains exactly that. Messages of the response are put into
    /// `outgoing`; the future returns their end.
    ///
    /// # Errors
    ///
    /// If the call cannot be started: the handler did not run.
    fn open(&self, _cx: Context, _incoming: Incoming, _outgoing: Outgoing) -> Result<ResponseFuture, Status> {
        Err(Status::unimplemented("the method does not stream"))
    }
}

/// A method with the request `Req` and the reply `Resp`, carried by the codec `C`.
pub(super) struct TypedMethod<C, Req, Resp, F> {
    handler: F,
    blocking: bool,
    input: Option<schema::Message>,
    output: Arc<Option<schema::Message>>,
    types: PhantomData<fn(C, Req) -> Resp>,
}

impl<C: Codec<Req> + Codec<Resp>, Req, Resp, F> TypedMethod<C, Req, Resp, F> {
    pub(super) fn new(pool: Option<&schema::Pool>, blocking: bool, handler: F) -> Self {
        let input = pool.and_then(<C as Codec<Req>>::describe);
        let output = Arc::new(pool.and_then(<C as Codec<Resp>>::describe));
        Self { handler, blocking, input, output, types: PhantomData }
    }
}

impl<C, Req, Resp, F, Fut> Method for TypedMethod<C, Req, Resp, F>
where
    C: Codec<Req> + Codec<Resp>,
    Req: Send + 'static,
    Resp: Send + 'static,
    F: Fn(Context, Req) -> Fut + Send + Sync,
    Fut: Future<Output = (Context, Result<Resp, Failure>)> + Send + 'static,
{
    fn start(&self, cx: Context, body: Body) -> Result<ResponseFuture, Status> {
        let request = cx.facts().read::<C, Req>(body, self.input.as_ref())?;
        phase_ended(Phase::Decode);
        let handling = (self.handler)(cx, request);
        let output = self.output.clone();
        Ok(Box::pin(async move {
            let (cx, result) = handling.await;
            phase_ended(Phase::Handle);
            let outcome = finish::<C, Resp>(cx, result, output.as_ref().as_ref());
            phase_ended(Phase::Encode);
            outcome
        }))
    }

    fn decodes_slowly(&self, body: &Body) -> bool {
        <C as Codec<Req>>::decodes_slowly(body, self.input.as_ref())
    }

    fn is_blocking(&self) -> bool {
        self.blocking
    }

    fn check(&self, format: Format) -> Result<(), Status> {
        <C as Codec<Req>>::check(format)?;
        <C as Codec<Resp>>::check(format)
    }

    fn type_schemas(&self) -> (TypeSchema, TypeSchema) {
        let request = <C as Codec<Req>>::type_schema(self.input.as_ref());
        (request, <C as Codec<Resp>>::type_schema(Option::as_ref(&self.output)))
    }
}

impl<C, Req, Resp, F> fmt::Debug for TypedMethod<C, Req, Resp, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedMethod").field("blocking", &self.blocking).finish_non_exhaustive()
    }
}

/// Encodes the handler's result in the format that it or the protocol requires.
pub(super) fn finish<C: Codec<Resp>, Resp>(
    cx: Context,
    result: Result<Resp, Failure>,
    schema: Option<&schema::Message>,
) -> Outcome {
    let format = cx.reply_format(C::carries);
    let result = match result {
        Ok(response) => C::encode_owned(response, format, schema),
        Err(error) => Err(error.into_status()),
    };
    cx.end(format, result)
}

impl Context {
    /// Ends the call with a message encoded in `format`, or with a failure.
    pub(crate) fn end(mut self, format: Format, result: Result<bytes::Bytes, Status>) -> Outcome {
        let result = result.map_err(|status| self.site().status_for_caller(status));
        let accepted = self.take_accepted();
        let reply = self.into_reply();
        if reply.close_connection {
            return OutcomeKind::CloseConnection.into();
        }
        let (attachment, trailers) = (reply.attachment, reply.trailers);
        let head = Head {
            format,
            compression: reply.compression,
            checksum: reply.checksum,
            metadata: reply.metadata,
            ..Head::default()
        };
        let reply = Reply { attachment, trailers, ..Reply::new(result, head) };
        match accepted {
            Some(accepted) if reply.result.is_ok() => OutcomeKind::Accept(Box::new(reply), accepted).into(),
            _ => OutcomeKind::Reply(reply).into(),
        }
    }
}
