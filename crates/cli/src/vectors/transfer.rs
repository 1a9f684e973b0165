//! rpcx's streams and file transfers.

use std::io::Cursor;
use std::sync::{Arc, Mutex, PoisonError};

use polyrpc::transfer::{ByteStream, FileRequest, Files, StreamRequest, Streams, Upload};
use polyrpc::{Result, Status};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Answers five bytes with `echo ` and these, or where the metadata says `echo`, all bytes with themselves.
pub(super) fn streams() -> Streams {
    Streams::new(serve).accept(|_, request| match request.metadata.contains_key("refuse") {
        true => Err(Status::permission_denied("server refused the connection").into()),
        false => Ok(()),
    })
}

async fn serve(mut stream: ByteStream, request: StreamRequest) -> Result<()> {
    if request.metadata.contains_key("echo") {
        let (mut from, mut to) = tokio::io::split(stream);
        tokio::io::copy(&mut from, &mut to).await?;
        return Ok(());
    }
    let mut word = [0; 5];
    stream.read_exact(&mut word).await?;
    stream.write_all(&[b"echo ", &word[..]].concat()).await?;
    Ok(())
}

/// Takes files and keeps the last, and gives out it as `last`, nothing as `missing`, and every other as `file:` and its
/// name.
pub(super) fn files() -> Files {
    let last = Arc::new(Mutex::new(Vec::new()));
    let kept = last.clone();
    Files::new()
        .largest(16 << 20)
        .on_upload(move |_: FileRequest, mut upload: Upload| {
            let kept = kept.clone();
            async move {
                let mut content = Vec::new();
                upload.read_to_end(&mut content).await?;
                *kept.lock().unwrap_or_else(PoisonError::into_inner) = content;
                Ok(())
            }
        })
        .on_download(move |request: FileRequest| {
            let found = match request.name.as_str() {
                "missing" => Err(Status::not_found("there is no such file").into()),
                "last" => Ok(last.lock().unwrap_or_else(PoisonError::into_inner).clone()),
                name => Ok(format!("file:{name}").into_bytes()),
            };
            async move { found.map(Cursor::new) }
        })
}
