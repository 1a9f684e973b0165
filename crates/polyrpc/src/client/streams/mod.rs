//! Calls with several messages: [`opened`] holds such a call's two halves, [`talk`] drives both at once. They come to a user
//! as they are ([`raw`]), with types ([`streamed`]), beside a call ([`beside`]), or as a subscription ([`subscribed`]).

mod beside;
mod opened;
mod raw;
mod streamed;
mod subscribed;
mod talk;

pub use self::raw::{RawCall, RawReceiver, RawSender};
