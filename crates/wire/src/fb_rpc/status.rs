//! How failures travel: as brpc's numbers, and nothing else.

use std::borrow::Cow;

use polyrpc_core::{Code, Status};

use crate::brpc_status as brpc;

/// The number that tells `status` to a peer: its own if it has one, else brpc's for its code.
///
/// A failure that says no more than that it failed is −1, what `Controller::SetFailed` without a code leaves; here
/// nobody turns it into 2001 as baidu_std does.
pub fn number(status: &Status) -> i32 {
    match (brpc::number(status), status.code()) {
        (number, Code::Internal | Code::Unknown)
            if status.number().is_none() && number == brpc::EINTERNAL =>
        {
            FAILED
        }
        (number, _) => number,
    }
}

/// The failure that a peer told by `number`. No text travels, so this gives it one.
#[cold]
pub fn status(number: i32) -> Status {
    if number == FAILED {
        return Status::internal("the server says that the call failed").with_number(FAILED);
    }
    let text: Cow<'static, str> = match brpc::name(number) {
        Some(name) => format!("the server says {name}").into(),
        None => "the server says no more than this number".into(),
    };
    brpc::status(number, text)
}

/// A failure without a number.
pub const FAILED: i32 = -1;
