use polyrpc::{Context, Result};

use crate::proto::example::{EchoRequest, EchoResponse, EchoService};

/// brpc's example: what comes goes back, the attachment too.
pub(super) struct Echo;

impl EchoService for Echo {
    async fn echo(&self, cx: &mut Context, request: EchoRequest) -> Result<EchoResponse> {
        cx.reply().attachment = cx.attachment().clone();
        Ok(EchoResponse { message: request.message, ..EchoResponse::default() })
    }
}
