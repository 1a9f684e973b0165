//! Classification of responses without a call that are rejections worth reporting.

use polyrpc_core::session::RefusalCause;

use super::answer::Answer;
use super::status;

/// Returns why this response rejects its request; `None` if it does not, or if the server knows of it already.
#[cold]
pub(crate) fn cause(answer: &Answer) -> Option<RefusalCause> {
    match answer {
        Answer::Failed(http, _) | Answer::Text(http, _) | Answer::Service(http, _) => status_cause(*http),
        Answer::NoMethod { .. } => Some(RefusalCause::Unknown),
        Answer::Unfit(failure) => status::is_too_large(failure).then_some(RefusalCause::TooLarge),
        Answer::MustConnect
        | Answer::OtherVerb { .. }
        | Answer::UnsupportedType { .. }
        | Answer::UnsupportedCoding
        | Answer::NoWebSocket(_) => Some(RefusalCause::Unsupported),
        Answer::Version
        | Answer::DebugPage
        | Answer::Options(_)
        | Answer::GoingAway
        | Answer::Unreadable(..)
        | Answer::Json(_)
        | Answer::Refused(_) => None,
    }
}

fn status_cause(http: u16) -> Option<RefusalCause> {
    match http {
        413 | 431 => Some(RefusalCause::TooLarge),
        404 => Some(RefusalCause::Unknown),
        405 | 406 | 415 | 501 => Some(RefusalCause::Unsupported),
        _ => None,
    }
}
