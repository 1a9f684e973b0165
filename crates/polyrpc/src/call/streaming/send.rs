use std::future::poll_fn;

use polyrpc_core::{Format, Status};
use polyrpc_payload::schema;

use super::{Outgoing, Streaming};
use crate::codec::Codec;

/// Sends all messages of a stream, each polled only when there is room for it.
pub(crate) async fn send<C: Codec<Resp>, Resp>(
    mut messages: Streaming<Resp>,
    outgoing: &Outgoing,
    format: Format,
    schema: Option<&schema::Message>,
) -> Result<(), Status> {
    loop {
        poll_fn(|cx| outgoing.poll_room(cx)).await;
        match messages.message().await {
            Ok(Some(message)) => outgoing.send(C::encode_owned(message, format, schema)?),
            Ok(None) => return Ok(()),
            Err(error) => return Err(error.into_status()),
        }
    }
}
