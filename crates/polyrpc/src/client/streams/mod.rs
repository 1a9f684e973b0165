//! Streaming calls: [`streaming_call`] holds a call's two halves, [`bidi_call`] drives both at once. Users get them
//! encoded ([`raw`]), typed ([`stream_calls`]), attached to a call ([`attached_streams`]), or as a [`subscription`].

mod attached_streams;
mod bidi_call;
mod raw;
mod stream_calls;
mod streaming_call;
mod subscription;

pub use self::raw::{RawCall, RawReceiver, RawSender};
