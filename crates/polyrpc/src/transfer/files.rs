use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, ready};
use std::{fmt, io};

use polyrpc_core::Status;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf, Take};

use super::messages::{Grant, TransferRequest};
use super::tokens::DataConnections;
use super::{Authorize, ByteStream, Request, Work};
use crate::Result;
use crate::call::Context;
use crate::codec::Serde;
use crate::service::ServiceBuilder;

/// Files that clients may upload and download: rpcx's file transfer.
///
/// ```no_run
/// use polyrpc::transfer::Files;
/// use polyrpc::{Server, Status};
///
/// let files = Files::new()
///     .on_upload(|request, mut upload| async move {
///         let name = request.file_name().ok_or_else(|| Status::invalid_argument("no file's name"))?;
///         println!("{name} of {:?} bytes from {}", request.size, request.peer);
///         tokio::io::copy(&mut upload, &mut tokio::io::sink()).await?;
///         Ok(())
///     })
///     .on_download(|request| async move { Ok(std::io::Cursor::new(format!("file:{}", request.name))) })
///     .max_size(16 << 20);
/// let server = Server::new().files(files);
/// ```
#[must_use]
#[derive(Clone)]
pub struct Files {
    service: String,
    upload: Option<UploadHandler>,
    download: Option<DownloadHandler>,
    authorize: Option<Authorize>,
    largest: u64,
    advertised: Option<Arc<str>>,
}

type UploadHandler = Arc<dyn Fn(Request, Upload) -> Work + Send + Sync>;
type DownloadHandler = Arc<dyn Fn(Request) -> Opening + Send + Sync>;
type Opening = Pin<Box<dyn Future<Output = Result<Content>> + Send>>;
type Content = Pin<Box<dyn AsyncRead + Send>>;

impl Default for Files {
    fn default() -> Self {
        Self::new()
    }
}

impl Files {
    /// Creates the service without any handler: set one for uploads, or downloads, or both.
    pub fn new() -> Self {
        Self {
            service: SERVICE.to_owned(),
            upload: None,
            download: None,
            authorize: None,
            largest: DEFAULT_MAX_SIZE,
            advertised: None,
        }
    }

    /// Sets the upload handler. It reads a file to its end; if it fails, the client sees a broken connection.
    pub fn on_upload<F, Fut>(mut self, handler: F) -> Self
    where
        F: Fn(Request, Upload) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        self.upload = Some(Arc::new(move |request, upload| Box::pin(handler(request, upload))));
        self
    }

    /// Sets the download handler. It opens a file during the call, so that its error is the call's error.
    pub fn on_download<F, Fut, R>(mut self, handler: F) -> Self
    where
        F: Fn(Request) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R>> + Send + 'static,
        R: AsyncRead + Send + 'static,
    {
        self.download = Some(Arc::new(move |request| {
            let opening = handler(request);
            Box::pin(async move { Ok(Box::pin(opening.await?) as Content) })
        }));
        self
    }

    /// Sets a check of each request; its error is the call's error.
    pub fn accept(
        mut self,
        authorize: impl Fn(&Context, &Request) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.authorize = Some(Arc::new(authorize));
        self
    }

    /// Limits the size of an uploaded file in bytes. Default: 1 GiB.
    pub fn max_size(mut self, bytes: u64) -> Self {
        self.largest = bytes;
        self
    }

    /// Directs clients to this `host:port` instead of the address that they called, as
    /// [`Streams`](super::Streams::advertise).
    pub fn advertise(mut self, address: impl Into<Arc<str>>) -> Self {
        self.advertised = Some(address.into());
        self
    }

    /// Sets the service name. Default: `_filetransfer`.
    pub fn service_name(mut self, service: impl Into<String>) -> Self {
        self.service = service.into();
        self
    }

    pub(super) fn into_service(self, data: &Arc<DataConnections>) -> ServiceBuilder {
        let (files, ours) = (Arc::new(self), data.clone());
        let (same, theirs) = (files.clone(), data.clone());
        ServiceBuilder::new(files.service.clone())
            .method::<Serde, TransferRequest, Grant, _, _>(
                "TransferFile",
                move |cx: Context, transfer_request: TransferRequest| {
                    let granted = files.grant_upload(&ours, &cx, transfer_request);
                    async move { (cx, granted) }
                },
            )
            .method::<Serde, TransferRequest, Grant, _, _>(
                "DownloadFile",
                move |cx: Context, transfer_request: TransferRequest| {
                    let (files, data) = (same.clone(), theirs.clone());
                    async move {
                        let granted = files.grant_download(&data, &cx, transfer_request).await;
                        (cx, granted)
                    }
                },
            )
    }

    fn grant_upload(
        &self,
        data: &DataConnections,
        cx: &Context,
        transfer_request: TransferRequest,
    ) -> Result<Grant> {
        let Some(handler) = self.upload.clone() else {
            return Err(Status::unimplemented("this server takes no files").into());
        };
        let request = self.admit(cx, transfer_request)?;
        if request.size.is_some_and(|size| size > self.largest) {
            let text = format!("a file may have at most {} bytes", self.largest);
            return Err(Status::resource_exhausted(text).into());
        }
        let largest = self.largest;
        let start = Box::new(move |stream| {
            let upload = Upload::new(stream, request.size, largest);
            handler(request, upload)
        });
        Ok(data.grant(cx, self.advertised.as_ref(), start)?)
    }

    async fn grant_download(
        &self,
        data: &DataConnections,
        cx: &Context,
        transfer_request: TransferRequest,
    ) -> Result<Grant> {
        let Some(handler) = &self.download else {
            return Err(Status::unimplemented("this server gives out no files").into());
        };
        let mut content = handler(self.admit(cx, transfer_request)?).await?;
        let start = Box::new(move |mut stream: ByteStream| -> Work {
            Box::pin(async move {
                tokio::io::copy(&mut content, &mut stream).await?;
                Ok(())
            })
        });
        Ok(data.grant(cx, self.advertised.as_ref(), start)?)
    }

    fn admit(&self, cx: &Context, transfer_request: TransferRequest) -> Result<Request> {
        let size = match transfer_request.file_size {
            Some(size) if size < 0 => {
                return Err(Status::invalid_argument("a file has no less than 0 bytes").into());
            }
            size => size.and_then(|size| u64::try_from(size).ok()).filter(|size| *size > 0),
        };
        let (name, metadata) =
            (transfer_request.file_name.unwrap_or_default(), transfer_request.meta.unwrap_or_default());
        let request = Request { name, size, metadata, peer: cx.peer().clone() };
        if let Some(authorize) = &self.authorize {
            authorize(cx, &request)?;
        }
        Ok(request)
    }
}

/// Uploaded file.
///
/// It ends after the announced size. Ending earlier, or exceeding the limit, is an error.
#[derive(Debug)]
pub struct Upload {
    content: Take<ByteStream>,
    announced: bool,
}

impl Upload {
    fn new(stream: ByteStream, size: Option<u64>, largest: u64) -> Self {
        Self { content: stream.take(size.unwrap_or(largest)), announced: size.is_some() }
    }

    fn poll_end(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        match (self.announced, self.content.limit()) {
            (true, 0) | (false, 1..) => Poll::Ready(Ok(())),
            (true, missing) => {
                let text = format!("{missing} bytes of the file are missing");
                Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, text)))
            }
            (false, 0) => self.poll_no_more(cx),
        }
    }

    /// Only the end of the connection marks the end of the file: no byte may follow the limit.
    fn poll_no_more(&mut self, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        let mut room = [0; 1];
        let mut one = ReadBuf::new(&mut room);
        ready!(Pin::new(self.content.get_mut()).poll_read(cx, &mut one))?;
        Poll::Ready(match one.filled().is_empty() {
            true => Ok(()),
            false => Err(io::Error::new(io::ErrorKind::InvalidData, "the file is larger than it may be")),
        })
    }
}

impl AsyncRead for Upload {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.remaining();
        ready!(Pin::new(&mut self.content).poll_read(cx, buffer))?;
        match before == buffer.remaining() && before > 0 {
            true => self.poll_end(cx),
            false => Poll::Ready(Ok(())),
        }
    }
}

/// Name in rpcx (rpcx `share/share.go`).
pub(super) const SERVICE: &str = "_filetransfer";

/// Default limit of a file's size.
const DEFAULT_MAX_SIZE: u64 = 1 << 30;

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").field("service", &self.service).finish_non_exhaustive()
    }
}
