//! `RpcMeta` and `StreamFrameMeta`, with hand-written protobuf encoding and decoding: a call's meta costs no allocation
//! unless it carries user fields (brpc `policy/baidu_rpc_meta.proto`, `streaming_rpc_meta.proto`).

use polyrpc_core::protobuf::{put_varint, varint_len};

/// The bytes are not a valid protobuf message of the expected type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MalformedMeta;

/// `RpcMeta`, the meta of a request or a response. `None` marks an absent field.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Meta<'a> {
    pub(super) request: Option<Request<'a>>,
    pub(super) response: Option<Response<'a>>,
    pub(super) compress_type: Option<i32>,
    pub(super) correlation_id: i64,
    pub(super) attachment_size: Option<i32>,
    pub(super) authentication_data: Option<&'a [u8]>,
    pub(super) stream_settings: Option<StreamSettings>,
    pub(super) user_fields: Vec<(&'a [u8], &'a [u8])>,
    /// There were more user fields, which are not kept.
    pub(super) has_more_user_fields: bool,
    pub(super) content_type: Option<i32>,
    pub(super) checksum_type: Option<i32>,
    pub(super) checksum_value: Option<&'a [u8]>,
    pub(super) checksum_with_attachment: bool,
}

impl<'a> Meta<'a> {
    /// Reads a meta, which is malformed if it has more than [`MAX_USER_FIELDS`].
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, MalformedMeta> {
        let meta = Self::read_response(bytes)?;
        if meta.has_more_user_fields { Err(MalformedMeta) } else { Ok(meta) }
    }

    /// Reads the meta of a response, with the first [`MAX_USER_FIELDS`] of its user fields: its call can be told even if
    /// there are more.
    pub(super) fn read_response(bytes: &'a [u8]) -> Result<Self, MalformedMeta> {
        let mut meta = Self::default();
        meta.merge(bytes).map(|()| meta)
    }

    fn merge(&mut self, bytes: &'a [u8]) -> Result<(), MalformedMeta> {
        let mut chunk_info = None::<ChunkInfo>;
        let mut fields = Fields::new(bytes);
        while let Some(field) = fields.next()? {
            match field {
                (1, Value::Bytes(bytes)) => self.request.get_or_insert_default().merge(bytes)?,
                (2, Value::Bytes(bytes)) => self.response.get_or_insert_default().merge(bytes)?,
                (3, Value::Varint(value)) => self.compress_type = Some(int32(value)),
                (4, Value::Varint(value)) => self.correlation_id = value.cast_signed(),
                (5, Value::Varint(value)) => self.attachment_size = Some(int32(value)),
                (6, Value::Bytes(bytes)) => chunk_info.get_or_insert_default().merge(bytes)?,
                (7, Value::Bytes(bytes)) => self.authentication_data = Some(bytes),
                (8, Value::Bytes(bytes)) => self.stream_settings.get_or_insert_default().merge(bytes)?,
                (9, Value::Bytes(bytes)) => self.add_user_field(bytes)?,
                // A closed enum of proto2: an unknown number leaves the field unchanged.
                (10, Value::Varint(value)) if (0..=3).contains(&int32(value)) => {
                    self.content_type = Some(int32(value));
                }
                (11, Value::Varint(value)) => self.checksum_type = Some(int32(value)),
                (12, Value::Bytes(bytes)) => self.checksum_value = Some(bytes),
                (13, Value::Varint(value)) => self.checksum_with_attachment = value != 0,
                _ => {}
            }
        }
        let complete = self.request.as_ref().is_none_or(Request::is_complete)
            && self.stream_settings.as_ref().is_none_or(StreamSettings::is_complete)
            && chunk_info.as_ref().is_none_or(ChunkInfo::is_complete);
        if complete { Ok(()) } else { Err(MalformedMeta) }
    }

    fn add_user_field(&mut self, entry: &'a [u8]) -> Result<(), MalformedMeta> {
        let (mut key, mut value) = (&b""[..], &b""[..]);
        let mut fields = Fields::new(entry);
        while let Some(field) = fields.next()? {
            match field {
                (1, Value::Bytes(bytes)) => key = bytes,
                (2, Value::Bytes(bytes)) => value = bytes,
                _ => {}
            }
        }
        match self.user_fields.len() == MAX_USER_FIELDS {
            true => self.has_more_user_fields = true,
            false => self.user_fields.push((key, value)),
        }
        Ok(())
    }

    /// Appends the fields in the order of their numbers, like brpc.
    pub(super) fn write(&self, buffer: &mut Vec<u8>) {
        if let Some(request) = &self.request {
            put_length(buffer, 1, request.size());
            request.write(buffer);
        }
        if let Some(response) = &self.response {
            put_length(buffer, 2, response.size());
            response.write(buffer);
        }
        put_int32(buffer, 3, self.compress_type);
        put_int64(buffer, 4, Some(self.correlation_id));
        put_int32(buffer, 5, self.attachment_size);
        put_bytes(buffer, 7, self.authentication_data);
        if let Some(settings) = &self.stream_settings {
            put_length(buffer, 8, settings.size());
            settings.write(buffer);
        }
        for (key, value) in &self.user_fields {
            put_length(buffer, 9, bytes_size(Some(key)) + bytes_size(Some(value)));
            put_bytes(buffer, 1, Some(key));
            put_bytes(buffer, 2, Some(value));
        }
        put_int32(buffer, 10, self.content_type);
        put_int32(buffer, 11, self.checksum_type);
        put_bytes(buffer, 12, self.checksum_value);
        if self.checksum_with_attachment {
            put_int32(buffer, 13, Some(1));
        }
    }
}

/// Maximum number of user fields of a call or a reply: more than peers send, and equal to the limit of rpcx's metadata
/// entries. Each costs an allocation for a few bytes of a frame.
pub const MAX_USER_FIELDS: usize = 256;

/// `RpcRequestMeta`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Request<'a> {
    pub(super) service_name: Option<&'a [u8]>,
    pub(super) method_name: Option<&'a [u8]>,
    pub(super) log_id: Option<i64>,
    pub(super) trace_id: Option<i64>,
    pub(super) span_id: Option<i64>,
    pub(super) parent_span_id: Option<i64>,
    pub(super) request_id: Option<&'a [u8]>,
    pub(super) timeout_ms: Option<i32>,
}

impl<'a> Request<'a> {
    fn merge(&mut self, bytes: &'a [u8]) -> Result<(), MalformedMeta> {
        let mut fields = Fields::new(bytes);
        while let Some(field) = fields.next()? {
            match field {
                (1, Value::Bytes(bytes)) => self.service_name = Some(bytes),
                (2, Value::Bytes(bytes)) => self.method_name = Some(bytes),
                (3, Value::Varint(value)) => self.log_id = Some(value.cast_signed()),
                (4, Value::Varint(value)) => self.trace_id = Some(value.cast_signed()),
                (5, Value::Varint(value)) => self.span_id = Some(value.cast_signed()),
                (6, Value::Varint(value)) => self.parent_span_id = Some(value.cast_signed()),
                (7, Value::Bytes(bytes)) => self.request_id = Some(bytes),
                (8, Value::Varint(value)) => self.timeout_ms = Some(int32(value)),
                _ => {}
            }
        }
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.service_name.is_some() && self.method_name.is_some()
    }

    fn size(&self) -> usize {
        let ids = [self.log_id, self.trace_id, self.span_id, self.parent_span_id];
        bytes_size(self.service_name)
            + bytes_size(self.method_name)
            + ids.into_iter().map(int_size).sum::<usize>()
            + bytes_size(self.request_id)
            + int_size(self.timeout_ms.map(i64::from))
    }

    fn write(&self, buffer: &mut Vec<u8>) {
        put_bytes(buffer, 1, self.service_name);
        put_bytes(buffer, 2, self.method_name);
        put_int64(buffer, 3, self.log_id);
        put_int64(buffer, 4, self.trace_id);
        put_int64(buffer, 5, self.span_id);
        put_int64(buffer, 6, self.parent_span_id);
        put_bytes(buffer, 7, self.request_id);
        put_int32(buffer, 8, self.timeout_ms);
    }
}

/// `RpcResponseMeta`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Response<'a> {
    pub(super) error_code: i32,
    pub(super) error_text: Option<&'a [u8]>,
}

impl<'a> Response<'a> {
    fn merge(&mut self, bytes: &'a [u8]) -> Result<(), MalformedMeta> {
        let mut fields = Fields::new(bytes);
        while let Some(field) = fields.next()? {
            match field {
                (1, Value::Varint(value)) => self.error_code = int32(value),
                (2, Value::Bytes(bytes)) => self.error_text = Some(bytes),
                _ => {}
            }
        }
        Ok(())
    }

    fn size(&self) -> usize {
        int_size(Some(self.error_code.into())) + bytes_size(self.error_text)
    }

    fn write(&self, buffer: &mut Vec<u8>) {
        put_int32(buffer, 1, Some(self.error_code));
        put_bytes(buffer, 2, self.error_text);
    }
}

/// `StreamSettings`: settings of one side of one or more streams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StreamSettings {
    /// The sender's id of the first stream.
    pub(super) stream_id: Option<i64>,
    /// The sender limits its unacknowledged data and requires feedback on consumed bytes.
    pub(super) need_feedback: bool,
    /// The sender accepts messages.
    pub(super) writable: bool,
    /// The sender's ids of further streams of the same call.
    pub(super) extra_stream_ids: Vec<i64>,
}

impl StreamSettings {
    fn merge(&mut self, bytes: &[u8]) -> Result<(), MalformedMeta> {
        let mut fields = Fields::new(bytes);
        while let Some(field) = fields.next()? {
            match field {
                (1, Value::Varint(value)) => self.stream_id = Some(value.cast_signed()),
                (2, Value::Varint(value)) => self.need_feedback = value != 0,
                (3, Value::Varint(value)) => self.writable = value != 0,
                (4, Value::Varint(value)) => self.add_extra(value)?,
                (4, Value::Bytes(packed)) => self.add_packed(packed)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// A protobuf parser must accept packed and unpacked repeated numbers, whatever the schema declares.
    fn add_packed(&mut self, packed: &[u8]) -> Result<(), MalformedMeta> {
        let mut values = Fields::new(packed);
        while !values.rest.is_empty() {
            let value = values.varint()?;
            self.add_extra(value)?;
        }
        Ok(())
    }

    fn add_extra(&mut self, value: u64) -> Result<(), MalformedMeta> {
        if self.extra_stream_ids.len() == MAX_EXTRA_STREAMS {
            return Err(MalformedMeta);
        }
        self.extra_stream_ids.push(value.cast_signed());
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.stream_id.is_some()
    }

    /// Iterates over all ids, in the order in which both sides pair them.
    pub(super) fn ids(&self) -> impl Iterator<Item = i64> {
        self.stream_id.into_iter().chain(self.extra_stream_ids.iter().copied())
    }

    fn size(&self) -> usize {
        let extra = self.extra_stream_ids.iter().map(|id| int_size(Some(*id)));
        int_size(self.stream_id) + 2 * int_size(Some(1)) + extra.sum::<usize>()
    }

    /// brpc always sets both flags (`stream.cpp`, `FillSettings`).
    fn write(&self, buffer: &mut Vec<u8>) {
        put_int64(buffer, 1, self.stream_id);
        put_int32(buffer, 2, Some(self.need_feedback.into()));
        put_int32(buffer, 3, Some(self.writable.into()));
        self.extra_stream_ids.iter().for_each(|id| put_int64(buffer, 4, Some(*id)));
    }
}

/// Maximum number of extra streams: more than any peer opens with one call.
pub(super) const MAX_EXTRA_STREAMS: usize = 1023;

/// `ChunkInfo`: unused by peers, but a frame with an incomplete one is malformed all the same.
#[derive(Default)]
struct ChunkInfo {
    stream_id: bool,
    chunk_id: bool,
}

impl ChunkInfo {
    fn merge(&mut self, bytes: &[u8]) -> Result<(), MalformedMeta> {
        let mut fields = Fields::new(bytes);
        while let Some(field) = fields.next()? {
            match field {
                (1, Value::Varint(_)) => self.stream_id = true,
                (2, Value::Varint(_)) => self.chunk_id = true,
                _ => {}
            }
        }
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.stream_id && self.chunk_id
    }
}

/// `StreamFrameMeta`, the meta of a stream's frame.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct StreamMeta {
    /// The receiver's id of the stream.
    pub(super) stream_id: i64,
    /// The sender's id of the stream.
    pub(super) source_stream_id: Option<i64>,
    pub(super) frame_type: FrameType,
    /// More of the same message follows in another frame.
    pub(super) has_continuation: Option<bool>,
    /// Total bytes of the stream's messages consumed so far.
    pub(super) consumed_size: Option<i64>,
}

/// Type of a stream's frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum FrameType {
    #[default]
    Unknown,
    Rst,
    Close,
    Data,
    Feedback,
}

impl FrameType {
    const ALL: [Self; 5] = [Self::Unknown, Self::Rst, Self::Close, Self::Data, Self::Feedback];
}

impl StreamMeta {
    pub(super) fn read(bytes: &[u8]) -> Result<Self, MalformedMeta> {
        let (mut meta, mut stream_id) = (Self::default(), None);
        let mut fields = Fields::new(bytes);
        while let Some(field) = fields.next()? {
            match field {
                (1, Value::Varint(value)) => stream_id = Some(value.cast_signed()),
                (2, Value::Varint(value)) => meta.source_stream_id = Some(value.cast_signed()),
                (3, Value::Varint(value)) => {
                    let known = usize::try_from(int32(value)).ok().and_then(|at| FrameType::ALL.get(at));
                    meta.frame_type = known.copied().unwrap_or(meta.frame_type);
                }
                (4, Value::Varint(value)) => meta.has_continuation = Some(value != 0),
                (5, Value::Bytes(feedback)) => meta.merge_feedback(feedback)?,
                _ => {}
            }
        }
        meta.stream_id = stream_id.ok_or(MalformedMeta)?;
        Ok(meta)
    }

    fn merge_feedback(&mut self, feedback: &[u8]) -> Result<(), MalformedMeta> {
        let mut fields = Fields::new(feedback);
        while let Some(field) = fields.next()? {
            if let (1, Value::Varint(value)) = field {
                self.consumed_size = Some(value.cast_signed());
            }
        }
        Ok(())
    }

    pub(super) fn write(&self, buffer: &mut Vec<u8>) {
        put_int64(buffer, 1, Some(self.stream_id));
        put_int64(buffer, 2, self.source_stream_id);
        put_int32(buffer, 3, Some(self.frame_type as i32));
        put_int32(buffer, 4, self.has_continuation.map(i32::from));
        if self.consumed_size.is_some() {
            put_length(buffer, 5, int_size(self.consumed_size));
            put_int64(buffer, 1, self.consumed_size);
        }
    }
}

/// Iterator over the fields of a protobuf message.
// Similar to `payload::protobuf::Reader`, but separate so that it is inlined completely: it is on every call's path.
struct Fields<'a> {
    rest: &'a [u8],
}

/// A field's value, as far as the fields here need it.
#[derive(Clone, Copy, Debug)]
enum Value<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// A skipped fixed-width number or group: no field here has these types.
    Other,
}

impl<'a> Fields<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the next field's number and value.
    // Inlined into each message's loop, with everything it calls for common fields: this halves the instructions for
    // reading a meta.
    #[inline(always)]
    fn next(&mut self) -> Result<Option<(u32, Value<'a>)>, MalformedMeta> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (number, wire_type) = self.tag()?;
        let value = match wire_type {
            VARINT => Value::Varint(self.varint()?),
            LENGTH_DELIMITED => Value::Bytes(self.bytes()?),
            _ => {
                self.skip(number, wire_type, MAX_DEPTH)?;
                Value::Other
            }
        };
        Ok(Some((number, value)))
    }

    #[inline(always)]
    fn tag(&mut self) -> Result<(u32, u8), MalformedMeta> {
        let tag = u32::try_from(self.varint()?).map_err(|_| MalformedMeta)?;
        match tag >> 3 {
            0 => Err(MalformedMeta),
            number => Ok((number, (tag & 7) as u8)),
        }
    }

    #[inline(always)]
    fn varint(&mut self) -> Result<u64, MalformedMeta> {
        match self.rest {
            [byte @ ..0x80, rest @ ..] => {
                self.rest = rest;
                Ok((*byte).into())
            }
            _ => self.long_varint(),
        }
    }

    /// Reads at most ten bytes; bits beyond the 64th are dropped, as in libprotobuf.
    #[inline(never)]
    fn long_varint(&mut self) -> Result<u64, MalformedMeta> {
        let (mut value, mut bytes) = (0, self.rest.iter());
        for shift in (0..64).step_by(7) {
            let byte = *bytes.next().ok_or(MalformedMeta)?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                self.rest = bytes.as_slice();
                return Ok(value);
            }
        }
        Err(MalformedMeta)
    }

    #[inline(always)]
    fn bytes(&mut self) -> Result<&'a [u8], MalformedMeta> {
        let length = usize::try_from(self.varint()?).map_err(|_| MalformedMeta)?;
        self.take(length)
    }

    #[inline(always)]
    fn take(&mut self, length: usize) -> Result<&'a [u8], MalformedMeta> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(MalformedMeta)?;
        self.rest = rest;
        Ok(taken)
    }

    #[cold]
    fn skip(&mut self, number: u32, wire_type: u8, depth: usize) -> Result<(), MalformedMeta> {
        match wire_type {
            VARINT => self.varint().map(drop),
            FIXED64 => self.take(8).map(drop),
            LENGTH_DELIMITED => self.bytes().map(drop),
            GROUP => self.skip_group(number, depth.checked_sub(1).ok_or(MalformedMeta)?),
            FIXED32 => self.take(4).map(drop),
            _ => Err(MalformedMeta),
        }
    }

    fn skip_group(&mut self, number: u32, depth: usize) -> Result<(), MalformedMeta> {
        loop {
            match self.tag()? {
                (end, END_GROUP) if end == number => return Ok(()),
                (inner, wire_type) => self.skip(inner, wire_type, depth)?,
            }
        }
    }
}

const VARINT: u8 = 0;
const FIXED64: u8 = 1;
const LENGTH_DELIMITED: u8 = 2;
const GROUP: u8 = 3;
const END_GROUP: u8 = 4;
const FIXED32: u8 = 5;

/// Nesting limit of groups: libprotobuf's default.
const MAX_DEPTH: usize = 100;

/// Protobuf keeps the low 32 bits of a varint for an int32 or an enum.
fn int32(value: u64) -> i32 {
    value.cast_signed() as i32
}

fn put_int32(buffer: &mut Vec<u8>, number: u8, value: Option<i32>) {
    put_int64(buffer, number, value.map(i64::from));
}

/// A negative number takes ten bytes, even as an int32.
fn put_int64(buffer: &mut Vec<u8>, number: u8, value: Option<i64>) {
    if let Some(value) = value {
        buffer.push(number << 3 | VARINT);
        put_varint(buffer, value.cast_unsigned());
    }
}

fn put_bytes(buffer: &mut Vec<u8>, number: u8, bytes: Option<&[u8]>) {
    if let Some(bytes) = bytes {
        put_length(buffer, number, bytes.len());
        buffer.extend_from_slice(bytes);
    }
}

/// Starts a field of `length` bytes.
fn put_length(buffer: &mut Vec<u8>, number: u8, length: usize) {
    buffer.push(number << 3 | LENGTH_DELIMITED);
    put_varint(buffer, length as u64);
}

/// Returns the encoded length of a field, including its tag; every tag here is one byte.
fn int_size(value: Option<i64>) -> usize {
    value.map_or(0, |value| 1 + varint_len(value.cast_unsigned()))
}

fn bytes_size(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(0, |bytes| 1 + varint_len(bytes.len() as u64) + bytes.len())
}
