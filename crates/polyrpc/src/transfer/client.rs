use std::collections::HashMap;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use polyrpc_core::{Retry, Scope, Status};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::messages::{Grant, TransferRequest};
use super::{ByteStream, files, streams};
use crate::Client;
use crate::client::{DataConnector, Result};
use crate::transport::{Address, Socket};

/// Byte streams and files next to the calls ([`transfer`](crate::transfer)). The metadata is for the server's handler.
impl Client {
    /// Opens a byte stream, by rpcx's stream service.
    ///
    /// # Errors
    ///
    /// The server's error, or the reason why the server, or the address that it returned, cannot be reached.
    pub async fn byte_stream(&self, metadata: &HashMap<String, String>) -> Result<ByteStream> {
        let transfer_request = TransferRequest { meta: Some(metadata.clone()), ..TransferRequest::default() };
        self.open_data_connection(streams::SERVICE, "Stream", &transfer_request).await
    }

    /// Sends a file of `size` bytes, by rpcx's file transfer. Completes when the server has closed the connection, as
    /// ours do when their handler has ended. The protocol requires no further confirmation, so the
    /// client waits at most 3 s for a server that has received everything to close.
    ///
    /// # Errors
    ///
    /// As [`byte_stream`](Self::byte_stream); also if the content is shorter than `size`, or the server's handler
    /// failed.
    pub async fn send_file(
        &self,
        name: &str,
        size: u64,
        metadata: &HashMap<String, String>,
        content: impl AsyncRead,
    ) -> Result<()> {
        let file_size =
            i64::try_from(size).map_err(|_| Status::invalid_argument("a file has at most 2^63-1 bytes"))?;
        let (file_name, meta) = (Some(name.to_owned()), Some(metadata.clone()));
        let transfer_request = TransferRequest { file_name, file_size: Some(file_size), meta };
        let mut stream = self.open_data_connection(files::SERVICE, "TransferFile", &transfer_request).await?;
        let sent =
            tokio::io::copy(&mut pin!(content).take(size), &mut stream).await.map_err(connection_failed)?;
        if sent < size {
            let text = format!("the file was to have {size} bytes and has {sent}");
            return Err(Status::invalid_argument(text).into());
        }
        stream.shutdown().await.map_err(connection_failed)?;
        let mut nothing = tokio::io::sink();
        let closed = tokio::io::copy(&mut stream, &mut nothing);
        match tokio::time::timeout(CLOSE_TIMEOUT, closed).await {
            Ok(Err(error)) => Err(connection_failed(error).into()),
            Ok(Ok(_)) | Err(_) => Ok(()),
        }
    }

    /// Downloads a file, by rpcx's file transfer, and returns its size in bytes.
    ///
    /// # Errors
    ///
    /// As [`byte_stream`](Self::byte_stream); also if the content cannot be written, or the connection broke. A
    /// truncated file can be detected only if the server resets the connection, as ours do.
    pub async fn download_file(
        &self,
        name: &str,
        metadata: &HashMap<String, String>,
        into: &mut (impl AsyncWrite + Unpin),
    ) -> Result<u64> {
        let transfer_request = TransferRequest {
            file_name: Some(name.to_owned()),
            file_size: None,
            meta: Some(metadata.clone()),
        };
        let mut stream = self.open_data_connection(files::SERVICE, "DownloadFile", &transfer_request).await?;
        let fetched = tokio::io::copy(&mut stream, into).await.map_err(connection_failed)?;
        into.flush().await.map_err(Status::from_error)?;
        Ok(fetched)
    }

    /// Requests a data connection and establishes it.
    async fn open_data_connection(
        &self,
        service: &str,
        method: &str,
        transfer_request: &TransferRequest,
    ) -> Result<ByteStream> {
        // The grant is valid only on the server that returned it.
        let server = self.pin_to_server().await?;
        let grant: Grant = server.call(&format!("{service}/{method}"), transfer_request).await?;
        Ok(server.data_connector().connect(&grant).await?)
    }
}

impl DataConnector {
    async fn connect(&self, grant: &Grant) -> Result<ByteStream, Status> {
        let address = self.address(&grant.addr)?;
        let connecting = async {
            let stream = Arc::new(Socket::connect(&address).await?);
            let mut stream = ByteStream::new(stream, Bytes::new(), Arc::default());
            stream.write_all(&grant.token.0).await?;
            io::Result::Ok(stream)
        };
        let connected = tokio::time::timeout(self.connect_timeout, connecting).await;
        connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(|error| {
            Status::unavailable(format!("cannot connect to {address} for data: {error}"))
                .with_scope(Scope::Connection)
                .with_retry(Retry::Elsewhere)
        })
    }

    /// Address of the data connection. A server that listens at every address may return just that; the call's address
    /// is used then.
    fn address(&self, advertised: &str) -> Result<Address, Status> {
        let address = advertised.parse();
        match address.map_err(|_| {
            Status::internal(format!("the server names the invalid data address `{advertised}`"))
        })? {
            Address::Tcp(advertised) => Ok(Address::Tcp(match advertised.rsplit_once(':') {
                Some(("" | "0.0.0.0" | "[::]", port)) => format!("{}:{port}", self.host),
                _ => advertised,
            })),
            unix => Ok(unix),
        }
    }
}

#[cold]
fn connection_failed(error: io::Error) -> Status {
    Status::unavailable(format!("the connection for data broke: {error}")).with_scope(Scope::Connection)
}

/// Time that a server may take to close after a file.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unspecified_data_address_is_replaced_by_the_called_host() {
        let near = DataConnector::new(&Address::Tcp("[::1]:80".into()), CLOSE_TIMEOUT);
        for (advertised, want) in [
            ("10.0.0.1:9", Ok("10.0.0.1:9")),
            ("0.0.0.0:9", Ok("[::1]:9")),
            ("[::]:9", Ok("[::1]:9")),
            (":9", Ok("[::1]:9")),
            ("unix:/run/x", Ok("unix:/run/x")),
            ("nonsense", Err("the server names the invalid data address `nonsense`")),
        ] {
            let address = near.address(advertised).map(|address| address.to_string());
            assert_eq!(address.as_deref().map_err(Status::message), want);
        }
    }
}
