//! Failures are sent as brpc's numbers, without a text.

use std::borrow::Cow;

use polyrpc_core::{Code, Status};

use crate::brpc_status as brpc;

/// Returns the number sent to a peer for `status`: its own if it has one, else brpc's for its code.
///
/// An unspecified failure is −1, which `Controller::SetFailed` without a code sets; unlike in baidu_std, it is not
/// converted to 2001.
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

/// Returns the failure that a peer reports by `number`. The protocol sends no text, so that this supplies one.
#[cold]
pub fn status(number: i32) -> Status {
    if number == FAILED {
        return Status::internal("the server reports that the call failed").with_number(FAILED).into_remote();
    }
    let text: Cow<'static, str> = match brpc::name(number) {
        Some(name) => format!("the server reports {name}").into(),
        None => "the server reports only this number".into(),
    };
    brpc::status(number, text).into_remote()
}

/// A failure without a number.
pub const FAILED: i32 = -1;
