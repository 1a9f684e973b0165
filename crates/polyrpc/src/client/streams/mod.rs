//! Calls with several messages: [`opened`] holds such a call's two halves, [`talk`] drives both at once. They come to a user
//! as they are ([`raw`]), with types ([`streamed`]), beside a call ([`beside`]), or as a subscription ([`subscribed`]).

mod attached_streams;
mod bidi_call;
mod raw;
mod stream_calls;
mod streaming_call;
mod subscription;

pub use self::raw::{RawCall, RawReceiver, RawSender};
