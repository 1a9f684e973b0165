//! Client's side of streams: a call requests them.

use std::collections::BTreeMap;

use bytes::Bytes;
use polyrpc_core::session::{ClientEvent, StreamOptions};
use polyrpc_core::{CallId, Compression, Fault, Message, Outbox, Reply, Status};

use super::endpoint::Remote;
use super::{CloseReason, StreamEvent, StreamLimits, Streams, reset_all};
use crate::baidu_std::meta::StreamSettings;
use crate::brpc_status as status;
use crate::brpc_status::{ECONNRESET, EREQUEST};

/// The streams of a client's connection.
#[derive(Debug)]
pub(in crate::baidu_std) struct ClientStreams {
    pub(in crate::baidu_std) streams: Streams,
    /// Pending calls with streams, by correlation id.
    calls: BTreeMap<u64, Vec<u64>>,
}

impl ClientStreams {
    pub(in crate::baidu_std) fn new(limits: StreamLimits, message: usize) -> Self {
        Self { streams: Streams::new(limits, message), calls: BTreeMap::new() }
    }

    /// Whether `streams` more streams may be created.
    pub(in crate::baidu_std) fn has_room_for(&self, streams: usize) -> bool {
        self.streams.len() + streams <= self.streams.limits.streams
    }

    /// Creates this side's ends of a call's streams.
    pub(in crate::baidu_std) fn open_for_call(
        &mut self,
        call: CallId,
        streams: &[CallId],
        options: &StreamOptions,
    ) -> StreamSettings {
        for (n, stream) in streams.iter().enumerate() {
            self.streams.open(stream.0, options, call.0, n == 0);
        }
        self.calls.insert(call.0, streams.iter().map(|stream| stream.0).collect());
        let mut ids = streams.iter().map(|stream| stream.0.cast_signed());
        settings(options, ids.next(), ids.collect())
    }

    /// Handles the response to a call: its streams were accepted if there are settings, and stay open then. A call that
    /// was answered without them has failed (brpc `controller.cpp`, `HandleStreamConnection`).
    pub(in crate::baidu_std) fn finish_call(
        &mut self,
        call: u64,
        settings: Option<&StreamSettings>,
        result: Result<Bytes, Status>,
        out: &mut Outbox,
    ) -> Result<Bytes, Status> {
        let Some(streams) = self.calls.remove(&call) else {
            settings.into_iter().for_each(|settings| reset_all(settings, out));
            return result;
        };
        match (settings, result) {
            (Some(settings), Ok(message)) => {
                self.connect(&streams, settings, out);
                Ok(message)
            }
            (settings, result) => {
                settings.into_iter().for_each(|settings| reset_all(settings, out));
                streams.iter().for_each(|stream| self.streams.fail(*stream, CloseReason::NotAccepted));
                Err(result.err().unwrap_or_else(not_accepted))
            }
        }
    }

    /// Pairs the ends of both sides. An end that is left over has no counterpart.
    fn connect(&mut self, streams: &[u64], settings: &StreamSettings, out: &mut Outbox) {
        let mut remotes = Remote::all(settings);
        for stream in streams {
            match remotes.next() {
                Some(remote) if self.streams.connect(*stream, remote, out) => {}
                Some(remote) => super::frame::reset(remote.id, out),
                None => self.streams.fail(*stream, CloseReason::NotAccepted),
            }
        }
        remotes.for_each(|remote| super::frame::reset(remote.id, out));
    }

    /// Cancels a call or a stream whose result is no longer needed.
    pub(in crate::baidu_std) fn cancel(&mut self, id: CallId, out: &mut Outbox) {
        match self.calls.remove(&id.0) {
            Some(streams) => streams.iter().for_each(|stream| self.streams.finish(*stream, true, out)),
            None => self.streams.finish(id.0, true, out),
        }
    }

    /// Returns the next event, addressed to the call or stream it concerns.
    pub(in crate::baidu_std) fn next_event(&mut self) -> Option<ClientEvent> {
        Some(match self.streams.next_event()? {
            StreamEvent::Message(id, body) => {
                ClientEvent::Message(CallId(id), Message { body, compression: Compression::None })
            }
            StreamEvent::Closed(id) => {
                self.streams.forget(id);
                ClientEvent::Reply(CallId(id), Reply::new(Ok(Bytes::new()), <_>::default()))
            }
            StreamEvent::Reset(id, reason) => {
                ClientEvent::Reply(CallId(id), Reply::failure(stream_failed(reason)))
            }
            StreamEvent::Room(id) => ClientEvent::Room(CallId(id)),
            StreamEvent::Unanswered(call, reason) => {
                let streams = self.calls.remove(&call).unwrap_or_default();
                streams.iter().for_each(|stream| self.streams.fail(*stream, reason));
                ClientEvent::Reply(CallId(call), Reply::failure(failure(reason)))
            }
        })
    }
}

/// Returns the settings that the peer needs of one side's streams.
pub(super) fn settings(options: &StreamOptions, first: Option<i64>, extra: Vec<i64>) -> StreamSettings {
    StreamSettings {
        stream_id: first,
        need_feedback: options.max_buf_size > 0,
        writable: options.receives,
        extra_stream_ids: extra,
    }
}

/// Returns the failure of a stream that the server had accepted: the handler has started, so the call must not be
/// repeated. brpc sends nothing but the reset, whatever the handler's error is.
#[cold]
fn stream_failed(reason: CloseReason) -> Status {
    match reason {
        CloseReason::Reset => Status::unknown("the server reset the stream").with_number(ECONNRESET),
        reason => failure(reason),
    }
}

#[cold]
fn failure(reason: CloseReason) -> Status {
    match reason {
        CloseReason::Reset => status::status(ECONNRESET, "the server reset the stream"),
        CloseReason::TooMuch => {
            Status::resource_exhausted("the stream has more unconsumed data than allowed")
        }
        CloseReason::NotAccepted => not_accepted(),
        CloseReason::NoResponse => {
            status::status(EREQUEST, "Fail to parse response in the stream").with_fault(Fault::Peer)
        }
    }
}

/// brpc's own number and text.
#[cold]
fn not_accepted() -> Status {
    status::status(EREQUEST, "The server didn't accept the stream").with_fault(Fault::Peer)
}
