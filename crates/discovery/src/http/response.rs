use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use polyrpc::{Code, Status};
use serde::de::DeserializeOwned;

/// Complete response.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl HttpResponse {
    /// Decodes the JSON body of a successful response; `action` starts the error message.
    pub(crate) fn json<T: DeserializeOwned>(&self, action: &str) -> Result<T, Status> {
        if !self.status.is_success() {
            return Err(self.refusal(action));
        }
        serde_json::from_slice(&self.body).map_err(|error| {
            Status::unavailable(format!("{action}: the registry's response cannot be decoded: {error}"))
        })
    }

    /// Checks that the response is a success.
    pub(crate) fn check_success(&self, action: &str) -> Result<(), Status> {
        if self.status.is_success() { Ok(()) } else { Err(self.refusal(action)) }
    }

    /// Status of a rejected request.
    #[cold]
    pub(crate) fn refusal(&self, action: &str) -> Status {
        Status::new(code(self.status), format!("{action}: {} {}", self.status, self.text()))
    }

    /// Start of the body, as text.
    fn text(&self) -> Cow<'_, str> {
        let start = self.body.get(..MAX_TEXT_LEN).unwrap_or(&self.body);
        String::from_utf8_lossy(start)
    }
}

fn code(status: StatusCode) -> Code {
    match status {
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::FORBIDDEN => Code::PermissionDenied,
        StatusCode::NOT_FOUND | StatusCode::GONE => Code::NotFound,
        StatusCode::TOO_MANY_REQUESTS => Code::ResourceExhausted,
        status if status.is_client_error() => Code::InvalidArgument,
        _ => Code::Unavailable,
    }
}

/// Length of the body's start in an error message.
const MAX_TEXT_LEN: usize = 200;
