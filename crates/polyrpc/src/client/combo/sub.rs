use std::fmt;
use std::sync::Arc;

use bytes::BytesMut;
use polyrpc_core::{Format, Status};

use crate::Client;
use crate::call::{OutgoingCall, Response};
use crate::client::call_defaults::unreadable;
use crate::codec::{Body, Codec};

/// One of the clients of a [`Parallel`](super::Parallel), with what it is asked and what becomes of its answer.
///
/// ```
/// use polyrpc::Client;
/// use polyrpc::client::combo::{Merge, Parallel, Part, Sub};
///
/// # fn main() -> polyrpc::Result<()> {
/// let users = Client::new("baidu-std://10.0.0.1:8000")?;
/// let audit = Client::new("baidu-std://10.0.0.2:8000")?;
/// // The second is told of everything but reads, and what it answers is left out.
/// let told = Sub::new(audit)
///     .map(|call, _| if call.method == "Get" { Part::Skip } else { Part::Ask(call) })
///     .merge(|_, _, _| Merge::Merged);
/// let client = Parallel::builder().sub(users).sub(told).build()?;
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
pub(super) type Map = dyn for<'a> Fn(OutgoingCall<'a>, PartIndex) -> Part<'a> + Send + Sync;

/// brpc's `ResponseMerger`.
pub(super) type Merger =
    dyn Fn(&mut Option<Response<Body>>, Response<Body>, PartIndex) -> Merge + Send + Sync;

impl SubChannel {
    /// A client that is asked what the whole is asked, and whose answer is merged as protobuf merges messages.
    pub fn new(client: Client) -> Self {
        Self { client, map: Arc::new(same_request), merge: Arc::new(merge_messages) }
    }

    /// What the client is asked: brpc's `CallMapper`. It must not wait.
    #[must_use]
    pub fn map(
        mut self,
        map: impl for<'a> Fn(OutgoingCall<'a>, PartIndex) -> Part<'a> + Send + Sync + 'static,
    ) -> Self {
        self.map = Arc::new(map);
        self
    }

    /// What becomes of the client's answer: brpc's `ResponseMerger`. Of one call it runs for one answer at a time, in the
    /// order in which they come; the first finds no whole yet. It must not wait.
    ///
    /// Unless this is said, answers in protobuf are merged as protobuf merges messages: what may come several times is
    /// put together, of what comes once the last counts. Answers in other formats must be the same as the first then.
    #[must_use]
    pub fn merge(
        mut self,
        merge: impl Fn(&mut Option<Response<Body>>, Response<Body>, PartIndex) -> Merge + Send + Sync + 'static,
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
        f.debug_tuple("Sub").field(&self.client).finish()
    }
}

/// Which part of a call it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PartIndex {
    /// The client's place among the clients.
    pub index: usize,
    /// How many there are.
    pub count: usize,
}

/// What one client is asked.
#[derive(Debug)]
pub enum Part<'a> {
    /// This: the whole call, or what was made of it.
    Ask(OutgoingCall<'a>),
    /// Nothing. A call in which nobody is asked anything fails as cancelled.
    Skip,
    /// The request cannot be one: the whole call fails with this, and nobody is asked.
    Bad(Status),
}

/// What became of an answer.
#[derive(Debug)]
pub enum Merge {
    /// It is in the whole, or not needed there.
    Merged,
    /// It counts as a failure of the client that gave it.
    Fail(Status),
    /// The whole call fails with this, and ends.
    FailAll(Status),
}

/// A [merger](Sub::merge) of values: the first answer is the whole, and `fold` takes in each that comes later. An answer
/// that is no `T` counts as a failure of the client that gave it. What is beside the messages stays the first's.
///
/// ```
/// use polyrpc::Client;
/// use polyrpc::client::combo::{Parallel, Sub, fold};
/// use polyrpc::codec::Serde;
///
/// # fn main() -> polyrpc::Result<()> {
/// let shop = |url| Ok::<_, polyrpc::Error>(Sub::new(Client::new(url)?).merge(fold::<Serde, u64>(u64::min)));
/// let cheapest = Parallel::builder().sub(shop("rpcx://10.0.0.1:8972")?).sub(shop("rpcx://10.0.0.2:8972")?).build()?;
/// # Ok(())
/// # }
/// ```
pub fn fold<C, T>(
    fold: impl Fn(T, T) -> T + Send + Sync + 'static,
) -> impl Fn(&mut Option<Response<Body>>, Response<Body>, PartIndex) -> Merge + Send + Sync + 'static
where
    C: Codec<T>,
{
    move |whole, part, _| match take_in::<C, T>(whole, part, &fold) {
        Ok(()) => Merge::Merged,
        Err(status) => Merge::Fail(unreadable(&status)),
    }
}

fn take_in<C: Codec<T>, T>(
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

fn same_request(call: OutgoingCall<'_>, _: PartIndex) -> Part<'_> {
    Part::Ask(call)
}

/// Merges as protobuf does: the encoding of two messages, one behind the other, is that of both merged
/// (<https://protobuf.dev/programming-guides/encoding/#last-one-wins>).
pub(super) fn merge_messages(
    whole: &mut Option<Response<Body>>,
    part: Response<Body>,
    _: PartIndex,
) -> Merge {
    let Some(whole) = whole else {
        *whole = Some(part);
        return Merge::Merged;
    };
    let (all, more) = (&mut whole.message, part.message);
    match (all.format, more.format) {
        (Format::Protobuf, Format::Protobuf) if all.bytes.is_empty() => all.bytes = more.bytes,
        (Format::Protobuf, Format::Protobuf) => {
            // Without a copy from the second merge on: nobody else holds what the first has made.
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

/// The first answer is the whole.
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
        true => format!("different answers in {} need a merger", one.as_str()),
        false => format!("answers in {} and {} need a merger", one.as_str(), other.as_str()),
    };
    Status::unimplemented(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: PartIndex = PartIndex { index: 0, count: 2 };

    fn merged(format: Format, parts: &[&'static [u8]]) -> Result<Vec<u8>, Merge> {
        let mut whole = None;
        for part in parts {
            let part = Response::new(Body::new(format, *part));
            match merge_messages(&mut whole, part, PLACE) {
                Merge::Merged => {}
                other => return Err(other),
            }
        }
        Ok(whole.unwrap().message.bytes.to_vec())
    }

    #[test]
    fn messages_of_protobuf_are_put_one_behind_the_other() {
        assert_eq!(
            merged(Format::Protobuf, &[b"\x08\x01", b"", b"\x10\x02", b"\x08\x03"]).unwrap(),
            b"\x08\x01\x10\x02\x08\x03"
        );
        assert_eq!(merged(Format::Protobuf, &[b"", b"\x08\x01"]).unwrap(), b"\x08\x01");
    }

    #[test]
    fn other_formats_are_merged_only_if_all_say_the_same() {
        assert_eq!(merged(Format::MessagePack, &[b"\xc0", b"\xc0"]).unwrap(), b"\xc0");
        let refused = merged(Format::MessagePack, &[b"\xc0", b"\xc2"]).unwrap_err();
        assert!(matches!(refused, Merge::FailAll(status) if status.message().contains("need a merger")));
    }
}
