use std::str::FromStr;
use std::time::Duration;
use std::{fmt, io};

use polyrpc_core::Status;
use polyrpc_core::digits::parse_decimal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::line::Lines;
use super::polled::{self, PollResult, PollSource, jitter};
use super::{InstanceStream, redacted};
use crate::error::ClientResult as Result;

/// A file on an HTTP server. If it cannot be fetched, or lists no server, the previous result is kept.
#[derive(Clone)]
pub(super) struct RemoteFile {
    /// Host and port.
    authority: String,
    path: String,
}

impl RemoteFile {
    /// Fetches it at this interval.
    pub(super) fn watch(&self, every: Duration) -> InstanceStream {
        polled::sets(RemoteFileSource { file: self.clone(), every })
    }

    fn url(&self) -> String {
        redacted(&format!("http://{}{}", self.authority, self.path))
    }
}

impl fmt::Debug for RemoteFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RemoteFile").field(&self.url()).finish()
    }
}

impl FromStr for RemoteFile {
    type Err = Status;

    /// Parses `http://host:port/path`; the scheme is optional.
    fn from_str(text: &str) -> Result<Self, Status> {
        let wrong = |why: &str| {
            Status::invalid_argument(format!("`{}` is not the URL of a file: {why}", redacted(text)))
        };
        let rest = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => rest,
            Some((scheme, _)) => return Err(wrong(&format!("`{scheme}` is not http"))),
            None => text,
        };
        // Text that goes into a request head must not end its line.
        if !rest.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(wrong("it has blanks or bytes that are not ASCII"));
        }
        let (host, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
        if host.is_empty() {
            return Err(wrong("expected http://host/path"));
        }
        // The last colon of `[::1]` precedes no port.
        let port = host.rsplit_once(':').map(|(_, port)| port).filter(|port| !port.ends_with(']'));
        let authority = match port.map(parse_decimal::<u16>) {
            None => format!("{host}:80"),
            Some(Some(_)) => host.to_owned(),
            Some(None) => return Err(wrong("expected http://host:port/path")),
        };
        Ok(Self { authority, path: path.to_owned() })
    }
}

struct RemoteFileSource {
    file: RemoteFile,
    every: Duration,
}

impl PollSource for RemoteFileSource {
    const POLL_TIMEOUT: Duration = Duration::from_secs(5);

    async fn query(&mut self) -> Result<PollResult> {
        let RemoteFile { authority, path } = &self.file;
        let url = self.file.url();
        let wrong = |why: &str| Status::unavailable(format!("{url}: {why}"));
        let text = fetch(authority, path).await.map_err(|error| wrong(&error.to_string()))?;
        let lines = Lines::read(&String::from_utf8_lossy(&text));
        if lines.instances.is_empty() {
            return Err(wrong("it names no server").into());
        }
        let warning = lines.warning(&url).map(Into::into);
        Ok(PollResult { instances: Some(lines.instances), again: jitter(self.every), warning })
    }
}

/// Fetches the body at a path of an HTTP server.
///
/// The request uses HTTP/1.0, which has no chunks and ends with the connection, so that no further HTTP support is
/// needed here; all servers support it.
async fn fetch(authority: &str, path: &str) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(authority).await?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: {authority}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(MAX_BODY_SIZE).read_to_end(&mut answer).await?;
    body(answer)
}

/// Enough for some hundred thousand servers.
const MAX_BODY_SIZE: u64 = 16 << 20;

fn body(mut answer: Vec<u8>) -> io::Result<Vec<u8>> {
    let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut head = httparse::Response::new(&mut headers);
    let parsed = head.parse(&answer).map_err(|error| wrong(format!("the response is not HTTP: {error}")))?;
    let httparse::Status::Complete(begin) = parsed else {
        return Err(wrong("the response ends within its head".into()));
    };
    match head.code {
        Some(200) => {}
        code => return Err(wrong(format!("the server responded with {}", code.unwrap_or_default()))),
    }
    let mut length = None;
    for header in head.headers.iter() {
        if header.name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(wrong("the server sends chunks to an HTTP/1.0 client".into()));
        }
        if header.name.eq_ignore_ascii_case("content-length") {
            let text = std::str::from_utf8(header.value).ok();
            length = Some(text.and_then(|text| parse_decimal::<usize>(text.trim())));
        }
    }
    answer.drain(..begin);
    match length {
        // A truncated list would look like servers that have left.
        Some(Some(length)) if answer.len() < length => Err(wrong("the response is truncated".into())),
        Some(None) => Err(wrong("the response's length is not a number".into())),
        Some(Some(length)) => {
            answer.truncate(length);
            Ok(answer)
        }
        None if answer.len() as u64 >= MAX_BODY_SIZE - begin as u64 => {
            Err(wrong("the response is too long".into()))
        }
        None => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::discovery::testing::next_text;

    #[tokio::test(start_paused = true)]
    async fn file_is_fetched_periodically() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let file: RemoteFile = format!("http://{address}/servers?x=1").parse().unwrap();
        let mut sets = file.watch(Duration::from_secs(5));
        for (answer, expected) in [
            ("HTTP/1.1 200 OK\r\nServer: x\r\n\r\na:1\nb:1 3\n", "tcp@a:1 tcp@b:1?tag=3".to_owned()),
            (
                "HTTP/1.0 404 Not Found\r\n\r\n",
                format!("http://{address}/servers?x=1: the server responded with 404"),
            ),
            ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nc:1\nand more", "tcp@c:1".to_owned()),
            ("", format!("http://{address}/servers?x=1: the response ends within its head")),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nd:1\n",
                format!("http://{address}/servers?x=1: the response is truncated"),
            ),
            ("HTTP/1.1 200 OK\r\n\r\n# none\n", format!("http://{address}/servers?x=1: it names no server")),
        ] {
            let (next_text, request) = tokio::join!(next_text(&mut sets), answer_once(&listener, answer));
            assert_eq!(next_text, expected);
            assert_eq!(
                request,
                format!("GET /servers?x=1 HTTP/1.0\r\nHost: {address}\r\nConnection: close\r\n\r\n")
            );
        }
    }

    async fn answer_once(listener: &TcpListener, answer: &str) -> String {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8(request).unwrap()
    }

    #[test]
    fn invalid_responses_are_rejected() {
        for answer in [
            "",
            "\0\0\0",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na:1\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\na:1",
            "HTTP/1.1 200 OK\r\nContent-Length: +3\r\n\r\na:1",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\na:1",
            "HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n",
        ] {
            assert!(body(answer.into()).is_err(), "{answer:?}");
        }
    }

    #[test]
    fn file_urls_are_parsed() {
        for (text, authority, path) in [
            ("http://h/servers", "h:80", "/servers"),
            ("h:8080/a?b=c", "h:8080", "/a?b=c"),
            ("http://[::1]", "[::1]:80", "/"),
        ] {
            let file: RemoteFile = text.parse().unwrap();
            assert_eq!((&*file.authority, &*file.path), (authority, path), "{text}");
        }
        for wrong in [
            "",
            "http://",
            "/x",
            "bns://x",
            "https://h/x",
            "h/a b",
            "h/\r\nx",
            "h:+80/x",
            "[::1]:+80/x",
            "h:x/y",
            "h:/x",
        ] {
            assert!(wrong.parse::<RemoteFile>().is_err(), "{wrong}");
        }
    }
}
