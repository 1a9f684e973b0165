use bytes::Bytes;
use polyrpc::Streaming;
use polyrpc::codec::Raw;
use polyrpc::streaming::{Sender, StreamOptions};
use polyrpc::{Checksum, Compression, Context, Result, Status};

use crate::proto::example::{EchoRequest, EchoResponse, EchoService};

/// Does what its message says, and echoes it.
pub(super) struct Echo;

impl EchoService for Echo {
    async fn echo(&self, cx: &mut Context, request: EchoRequest) -> Result<EchoResponse> {
        let EchoRequest { message, .. } = request;
        match message.as_str() {
            // Without a code, brpc's number is EINTERNAL, 2001.
            "fail-generic" => Err(Status::unknown("deliberate failure"))?,
            "fail-code" => Err(Status::internal("custom error").with_number(54321))?,
            "close" => cx.reply().close_connection = true,
            _ => {}
        }
        if message.starts_with("stream") && cx.offered_streams() > 0 {
            for (incoming, sender) in cx.accept_streams::<Raw, Bytes>(StreamOptions::default())? {
                tokio::spawn(talk(incoming, sender));
            }
        }
        cx.reply().attachment = cx.attachment().clone();
        adorn(cx, &message);
        Ok(EchoResponse { message, ..EchoResponse::default() })
    }
}

/// Answers each message of a stream, until it ends.
async fn talk(mut incoming: Streaming<Bytes>, sender: Sender<Bytes>) -> Result<()> {
    while let Some(message) = incoming.message().await? {
        sender.send([b"S:", &message[..]].concat().into()).await?;
    }
    Ok(())
}

/// The message begins with what its answer shall carry.
fn adorn(cx: &mut Context, message: &str) {
    let format = cx.format();
    let reply = cx.reply();
    match message {
        gzip if gzip.starts_with("gzip") => reply.compression = Compression::Gzip,
        zlib if zlib.starts_with("zlib") => reply.compression = Compression::Zlib,
        snappy if snappy.starts_with("snappy") => reply.compression = Compression::Snappy,
        both if both.starts_with("crcatt") => reply.checksum = Checksum::MessageAndAttachment,
        crc if crc.starts_with("crc") => reply.checksum = Checksum::Message,
        same if same.starts_with("ctype") => reply.format = Some(format),
        fields if fields.starts_with("uf") => reply.metadata.insert("srv", "yes"),
        _ => {}
    }
}
