//! When the suite wants a call to be cancelled.

use std::time::Duration;

use polyrpc::client::CancelHandle;

use crate::proto::ClientCompatRequest;
use crate::proto::client_compat_request::cancel::CancelTiming;

/// Cancels a call of one message, if that is asked for, so long after it was sent.
pub(crate) fn cancel_soon(asked: &ClientCompatRequest, cancel: &CancelHandle) {
    let Some(asked) = asked.cancel.as_option() else { return };
    let millis = match asked.cancel_timing {
        Some(CancelTiming::AfterCloseSendMs(millis)) => millis,
        Some(CancelTiming::AfterNumResponses(_)) => return,
        Some(CancelTiming::BeforeCloseSend(_)) | None => 0,
    };
    cancel_in(Duration::from_millis(millis.into()), cancel);
}

pub(crate) fn cancel_in(pause: Duration, cancel: &CancelHandle) {
    let cancel = cancel.clone();
    tokio::spawn(async move {
        tokio::time::sleep(pause).await;
        cancel.cancel();
    });
}

/// Cancels the call if it is to be when so many messages have come.
pub(crate) fn cancel_after(asked: &ClientCompatRequest, cancel: &CancelHandle, received: usize) {
    let timing = asked.cancel.as_option().and_then(|asked| asked.cancel_timing.as_ref());
    if let Some(CancelTiming::AfterNumResponses(wanted)) = timing
        && *wanted as usize == received
    {
        cancel.cancel();
    }
}
