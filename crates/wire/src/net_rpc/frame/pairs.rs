//! Messages of two separately delimited parts, the header before the body.

use std::fmt;

use bytes::{Buf, Bytes, BytesMut};
use polyrpc_core::session::{RefusalCause, Refusals, UnreportedRefusals, ViolationKind};
use polyrpc_core::{Outbox, Status, Violation};

use super::{Failure, FrameCodec, Id, Outgoing, Request, Response, Tag};
use crate::oversized::{Discarding, MAX_DISCARDED, request_too_large, too_long};

/// What a codec implements to use messages of two parts.
pub(super) trait Parts: fmt::Debug + Send {
    /// The header of a failure is followed by an empty block, unless a server in Go wrote it: it fails to write the
    /// body, and sends the header together with the next response's. A header is never an empty block, so that both
    /// forms are recognised.
    const FAILURES_MAY_LACK_A_BODY: bool = false;

    /// Removes a header from `inbox`.
    fn header(&mut self, inbox: &mut BytesMut) -> Result<Option<Header>, Violation>;

    /// Removes the body after a header from `inbox`.
    fn body(&mut self, header: &Header, inbox: &mut BytesMut) -> Result<Option<Bytes>, Violation>;

    /// Returns the length of the body at the start of `inbox`, which exceeds the limit; `None` if it cannot be told.
    fn oversized_body(&self, _header: &Header, _inbox: &[u8]) -> Option<usize> {
        None
    }

    /// Appends a call, or nothing.
    fn request(&mut self, name: &str, number: u64, body: Bytes, out: &mut Outbox) -> Result<(), Status>;

    /// Appends a response, or nothing. The method is that of the call's header.
    fn response(&mut self, header: &Header, body: Option<Bytes>, out: &mut Outbox) -> Result<(), Status>;

    /// Returns how many bytes the inbox must hold before the expected part is complete; 0 if unknown.
    fn bytes_needed(&self) -> usize;

    /// Whether bytes of the expected part were removed from the inbox already.
    fn is_mid_part(&self) -> bool {
        false
    }

    /// Returns the number of received bytes held.
    fn held(&self) -> usize {
        0
    }
}

/// Header of a message, in either direction.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) method: Bytes,
    pub(super) number: u64,
    /// Why the call failed; empty if it did not.
    pub(super) error: Bytes,
    /// Length of the body, if the header contains it.
    pub(super) body: usize,
}

/// A codec whose messages have two parts.
#[derive(Debug)]
pub(super) struct Pairs<P> {
    parts: P,
    /// The header whose body is expected.
    header: Option<Header>,
    /// The previous response was a failure; the next byte shows whether it had a body.
    failed: bool,
    /// The rest of a body that exceeds the limit.
    discarding: Discarding,
    /// Why the connection ends, after the call whose body exceeds the limit has failed.
    violation: Option<Box<Violation>>,
    /// Calls whose body exceeds the limit, unless the connection ends by that.
    refusals: UnreportedRefusals,
}

impl<P: Parts> Pairs<P> {
    pub(super) fn new(parts: P) -> Self {
        Self {
            parts,
            header: None,
            failed: false,
            discarding: Discarding::default(),
            violation: None,
            refusals: UnreportedRefusals::default(),
        }
    }

    /// Takes the header whose body exceeds the limit. The body is discarded, or if its end cannot be told the
    /// connection ends next.
    ///
    /// # Errors
    ///
    /// `violation`, if it is another one or the header has not arrived.
    #[cold]
    fn take_oversized(&mut self, inbox: &BytesMut, violation: &Violation) -> Result<Header, Violation> {
        let header = match violation.kind() {
            ViolationKind::TooLarge => self.header.take(),
            _ => None,
        };
        let Some(header) = header else { return Err(violation.clone()) };
        match self.parts.oversized_body(&header, inbox).filter(|length| *length <= MAX_DISCARDED) {
            Some(length) => self.discarding.start(length),
            None => self.violation = Some(Box::new(violation.clone())),
        }
        Ok(header)
    }

    /// Returns the response whose body exceeds the limit.
    ///
    /// # Errors
    ///
    /// See [`take_oversized`](Self::take_oversized).
    #[cold]
    fn oversized_response(&mut self, inbox: &BytesMut, violation: &Violation) -> Result<Response, Violation> {
        let header = self.take_oversized(inbox, violation)?;
        let failure = Failure::TooLong(too_long(format!("the response cannot be read: {violation}")));
        Ok(Response { number: Some(header.number), result: Err(failure) })
    }

    /// Returns the call whose body exceeds the limit, which is to be answered by that.
    ///
    /// # Errors
    ///
    /// See [`take_oversized`](Self::take_oversized).
    #[cold]
    fn oversized_request(&mut self, inbox: &BytesMut, violation: &Violation) -> Result<Request, Violation> {
        let header = self.take_oversized(inbox, violation)?;
        if self.violation.is_none() {
            self.refusals.record(RefusalCause::TooLarge);
        }
        Ok(Request { malformed: Some(request_too_large(violation)), ..request(header, Bytes::new()) })
    }

    /// Discards what has arrived of a body that exceeds the limit. Returns whether that was all.
    ///
    /// # Errors
    ///
    /// If its end cannot be told.
    #[inline]
    fn discard(&mut self, inbox: &mut BytesMut) -> Result<bool, Violation> {
        if !self.discarding.take(inbox) {
            return Ok(false);
        }
        match &self.violation {
            None => Ok(true),
            Some(violation) => Err(Violation::clone(violation)),
        }
    }

    fn next(&mut self, inbox: &mut BytesMut) -> Result<Option<(Header, Bytes)>, Violation> {
        if self.header.is_none() {
            self.header = self.parts.header(inbox)?;
        }
        let Some(header) = &self.header else { return Ok(None) };
        let Some(body) = self.parts.body(header, inbox)? else { return Ok(None) };
        Ok(self.header.take().map(|header| (header, body)))
    }

    /// Reads the header of a response without a body.
    fn next_failure(&mut self, inbox: &mut BytesMut) -> Result<Option<Header>, Violation> {
        if self.failed && inbox.first() == Some(&0) {
            inbox.advance(1);
        }
        self.failed &= inbox.is_empty();
        if self.header.is_none() {
            self.header = self.parts.header(inbox)?;
        }
        let failure = self.header.take_if(|header| !header.error.is_empty());
        self.failed |= failure.is_some();
        Ok(failure)
    }
}

impl<P: Parts> FrameCodec for Pairs<P> {
    fn next_request(&mut self, inbox: &mut BytesMut) -> Result<Option<Request>, Violation> {
        if !self.discard(inbox)? {
            return Ok(None);
        }
        match self.next(inbox) {
            Ok(next) => Ok(next.map(|(header, body)| request(header, body))),
            Err(violation) => self.oversized_request(inbox, &violation).map(Some),
        }
    }

    fn next_response(&mut self, inbox: &mut BytesMut) -> Result<Option<Response>, Violation> {
        if !self.discard(inbox)? {
            return Ok(None);
        }
        if P::FAILURES_MAY_LACK_A_BODY
            && let Some(failure) = self.next_failure(inbox)?
        {
            let result = Err(Failure::Text(failure.error));
            return Ok(Some(Response { number: Some(failure.number), result }));
        }
        let next = match self.next(inbox) {
            Ok(next) => next,
            Err(violation) => return self.oversized_response(inbox, &violation).map(Some),
        };
        Ok(next.map(|(header, body)| Response {
            number: Some(header.number),
            result: if header.error.is_empty() { Ok(body) } else { Err(Failure::Text(header.error)) },
        }))
    }

    fn request(&mut self, call: Outgoing<'_>, out: &mut Outbox) -> Result<(), Status> {
        self.parts.request(call.name, call.number, call.body, out)
    }

    fn response(&mut self, tag: &Tag, result: Result<Bytes, &str>, out: &mut Outbox) -> Result<(), Status> {
        let Id::Number(number) = tag.id else { return Ok(()) };
        let (error, body) = match result {
            Ok(body) => (Bytes::new(), Some(body)),
            Err(text) => (Bytes::copy_from_slice(text.as_bytes()), None),
        };
        let header = Header { method: tag.method.clone(), number, error, body: 0 };
        self.parts.response(&header, body, out)
    }

    fn bytes_needed(&self) -> usize {
        self.parts.bytes_needed()
    }

    fn is_mid_message(&self, inbox: &BytesMut) -> bool {
        let is_incomplete = self.header.is_some() || self.parts.is_mid_part() || !inbox.is_empty();
        is_incomplete || self.discarding.is_active()
    }

    fn is_spent(&self) -> bool {
        self.violation.is_some() || self.discarding.is_active()
    }

    fn take_refusals(&mut self) -> Option<Refusals> {
        self.refusals.take()
    }

    fn held(&self) -> usize {
        let header = self.header.as_ref().map_or(0, |header| header.method.len() + header.error.len());
        header + self.parts.held()
    }
}

fn request(header: Header, body: Bytes) -> Request {
    Request { name: header.method, id: Id::Number(header.number), body, positional: false, malformed: None }
}
