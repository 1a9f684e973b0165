use std::fmt;
use std::sync::Arc;

use bytes::BytesMut;
use polyrpc_core::{Format, Status};

use super::assignment::PartitionIndex;
use crate::Client;
use crate::call::{OutgoingCall, Response};
use crate::client::call_defaults::unreadable;
use crate::codec::{Body, Codec};

/// One of the clients of a [`Parallel`](super::Parallel), with the mapping of its request and the merging of its reply.
///
/// ```
/// use polyrpc::Client;
/// use polyrpc::client::combo::{Merge, Parallel, SubChannel};
///
/// # fn main() -> polyrpc::Result<()> {
/// let users = Client::new("baidu-std://10.0.0.1:8000")?;
/// let audit = Client::new("baidu-std://10.0.0.2:8000")?;
/// // The second gets every call except reads, and its responses are ignored.
/// let audited = SubChannel::new(audit)
///     .map(|call, _| Ok((call.method != "Get").then_some(call)))
///     .merge(|_, _, _| Merge::Merged);
/// let client = Parallel::new().sub_channel(users).sub_channel(audited).build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SubChannel {
    pub(super) client: Client,
    pub(super) map: Arc<Map>,
    pub(super) merge: Arc<Merger>,
}

/// brpc's `CallMapper`.
pub(super) type Map = dyn for<'a> Fn(OutgoingCall<'a>, PartitionIndex) -> Result<Option<OutgoingCall<'a>>, Status>
    + Send
    + Sync;

/// brpc's `ResponseMerger`.
pub(super) type Merger =
    dyn Fn(&mut Option<Response<Body>>, Response<Body>, PartitionIndex) -> Merge + Send + Sync;

impl SubChannel {
    /// Creates a sub-channel that gets the same request as the whole, and whose reply is merged as a protobuf message.
    pub fn new(client: Client) -> Self {
        Self { client, map: Arc::new(same_request), merge: Arc::new(merge_messages) }
    }

    /// Sets the mapping of the request: brpc's `CallMapper`. It returns the request to this client, which is the whole
    /// call or one derived from it; `None` to skip the client; or an error, with which the whole call fails before
    /// anything is sent. If all clients are skipped, the call fails as cancelled. It must not block.
    #[must_use]
    pub fn map(
        mut self,
        map: impl for<'a> Fn(OutgoingCall<'a>, PartitionIndex) -> Result<Option<OutgoingCall<'a>>, Status>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.map = Arc::new(map);
        self
    }

    /// Sets the merging of the reply: brpc's `ResponseMerger`. It runs for one reply of a call at a time, in the order
    /// of arrival; the first one finds no merged reply yet. It must not block.
    ///
    /// By default, protobuf replies are merged as protobuf merges messages: repeated fields are concatenated, and of a
    /// singular field the last one wins. Replies in other formats must then be equal to the first one.
    #[must_use]
    pub fn merge(
        mut self,
        merge: impl Fn(&mut Option<Response<Body>>, Response<Body>, PartitionIndex) -> Merge
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.merge = Arc::new(merge);
        self
    }
}

impl From<Client> for SubChannel {
    fn from(client: Client) -> Self {
        Self::new(client)
    }
}

impl fmt::Debug for SubChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SubChannel").field(&self.client).finish()
    }
}

/// Result of merging a reply.
#[derive(Debug)]
#[non_exhaustive]
pub enum Merge {
    /// The reply is merged, or not needed.
    Merged,
    /// The reply counts as a failure of its client.
    Fail(Status),
    /// The whole call ends with this failure.
    FailAll(Status),
}

/// Returns a [merger](SubChannel::merge) of values: the first reply is the initial value, and `fold` adds each later
/// one. A reply that does not decode as `T` counts as a failure of its client. Metadata is taken from the first reply.
///
/// ```
/// use polyrpc::Client;
/// use polyrpc::client::combo::{Parallel, SubChannel, fold};
/// use polyrpc::codec::Serde;
///
/// # fn main() -> polyrpc::Result<()> {
/// let shop = |url| Ok::<_, polyrpc::Error>(SubChannel::new(Client::new(url)?).merge(fold::<Serde, u64>(u64::min)));
/// let cheapest = Parallel::new().sub_channel(shop("rpcx://10.0.0.1:8972")?).sub_channel(shop("rpcx://10.0.0.2:8972")?).build()?;
/// # Ok(())
/// # }
/// ```
pub fn fold<C, T>(
    fold: impl Fn(T, T) -> T + Send + Sync + 'static,
) -> impl Fn(&mut Option<Response<Body>>, Response<Body>, PartitionIndex) -> Merge + Send + Sync + 'static
where
    C: Codec<T>,
{
    move |whole, part, _| match fold_part::<C, T>(whole, part, &fold) {
        Ok(()) => Merge::Merged,
        Err(status) => Merge::Fail(unreadable(&status)),
    }
}

fn fold_part<C: Codec<T>, T>(
    whole: &mut Option<Response<Body>>,
    part: Response<Body>,
    fold: impl Fn(T, T) -> T,
) -> Result<(), Status> {
    let value = C::decode(part.message.clone(), None)?;
    let Some(whole) = whole else {
        *whole = Some(part);
        return Ok(());
    };
    let format = whole.message.format;
    let all = fold(C::decode(whole.message.clone(), None)?, value);
    whole.message = Body::new(format, C::encode_owned(all, format, None)?);
    Ok(())
}

fn same_request(call: OutgoingCall<'_>, _: PartitionIndex) -> Result<Option<OutgoingCall<'_>>, Status> {
    Ok(Some(call))
}

/// Merges as protobuf does: the concatenation of two encoded messages is the encoding of both merged
/// (<https://protobuf.dev/programming-guides/encoding/#last-one-wins>).
pub(super) fn merge_messages(
    whole: &mut Option<Response<Body>>,
    part: Response<Body>,
    _: PartitionIndex,
) -> Merge {
    let Some(whole) = whole else {
        *whole = Some(part);
        return Merge::Merged;
    };
    let (all, more) = (&mut whole.message, part.message);
    match (all.format, more.format) {
        (Format::Protobuf, Format::Protobuf) if all.bytes.is_empty() => all.bytes = more.bytes,
        (Format::Protobuf, Format::Protobuf) => {
            // No copy from the second merge on: the buffer of the first merge is not shared.
            let mut bytes = std::mem::take(&mut all.bytes).try_into_mut().unwrap_or_else(|all| {
                let mut copy = BytesMut::with_capacity(2 * (all.len() + more.bytes.len()));
                copy.extend_from_slice(&all);
                copy
            });
            bytes.extend_from_slice(&more.bytes);
            all.bytes = bytes.freeze();
        }
        (one, other) if one == other && all.bytes == more.bytes => {}
        (one, other) => return Merge::FailAll(unmergeable(one, other)),
    }
    Merge::Merged
}

/// Keeps the first reply.
pub(in crate::client) fn keep_first<O>(
    whole: &mut Option<Response<Body>>,
    part: Response<Body>,
    _: &O,
) -> Merge {
    whole.get_or_insert(part);
    Merge::Merged
}

#[cold]
fn unmergeable(one: Format, other: Format) -> Status {
    let text = match one == other {
        true => format!("different replies in {} need a merger", one.as_str()),
        false => format!("replies in {} and {} need a merger", one.as_str(), other.as_str()),
    };
    Status::unimplemented(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTITION: PartitionIndex = PartitionIndex { index: 0, count: 2 };

    fn merge_parts(format: Format, parts: &[&'static [u8]]) -> Result<Vec<u8>, Merge> {
        let mut whole = None;
        for part in parts {
            let part = Response::new(Body::new(format, *part));
            match merge_messages(&mut whole, part, PARTITION) {
                Merge::Merged => {}
                other => return Err(other),
            }
        }
        Ok(whole.unwrap().message.bytes.to_vec())
    }

    #[test]
    fn protobuf_messages_are_concatenated() {
        assert_eq!(
            merge_parts(Format::Protobuf, &[b"\x08\x01", b"", b"\x10\x02", b"\x08\x03"]).unwrap(),
            b"\x08\x01\x10\x02\x08\x03"
        );
        assert_eq!(merge_parts(Format::Protobuf, &[b"", b"\x08\x01"]).unwrap(), b"\x08\x01");
    }

    #[test]
    fn other_formats_are_merged_only_if_equal() {
        assert_eq!(merge_parts(Format::MessagePack, &[b"\xc0", b"\xc0"]).unwrap(), b"\xc0");
        let refused = merge_parts(Format::MessagePack, &[b"\xc0", b"\xc2"]).unwrap_err();
        assert!(matches!(refused, Merge::FailAll(status) if status.message().contains("need a merger")));
    }
}
