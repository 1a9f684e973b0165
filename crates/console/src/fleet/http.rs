//! Requests to other servers' pages: HTTP/1.0, so that an answer ends with its connection.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Status and body of a response.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) body: String,
}

/// Timeout of a request, including the connection.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum length of a response, headers included, in bytes.
const MAX_RESPONSE_LEN: usize = 1 << 20;

/// Requests a page from the server at `host:port`.
///
/// # Errors
///
/// A short text that says why there is no response.
pub(super) async fn get(
    address: &str,
    target: &str,
    accept: &str,
    token: Option<&str>,
) -> Result<Response, String> {
    match timeout(TIMEOUT, exchange(address, target, accept, token)).await {
        Ok(Ok(response)) => parse_response(&response).ok_or_else(|| "no HTTP".to_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", TIMEOUT.as_secs())),
    }
}

async fn exchange(address: &str, target: &str, accept: &str, token: Option<&str>) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await?;
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let request = format!("GET {target} HTTP/1.0\r\nHost: {address}\r\nAccept: {accept}\r\n{token}\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = Vec::new();
    stream.take(MAX_RESPONSE_LEN as u64 + 1).read_to_end(&mut response).await?;
    match response.len() > MAX_RESPONSE_LEN {
        true => Err(io::Error::other("its answer is too long")),
        false => Ok(response),
    }
}

fn parse_response(response: &[u8]) -> Option<Response> {
    let end = response.windows(4).position(|end| end == b"\r\n\r\n")?;
    let (head, body) = (response.get(..end)?, response.get(end + 4..)?);
    let line = head.split(|byte| *byte == b'\r').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let status = words.next().filter(|version| version.starts_with("HTTP/1.")).and_then(|_| words.next())?;
    Some(Response { status: status.parse().ok()?, body: String::from_utf8_lossy(body).into_owned() })
}

#[cfg(test)]
mod tests {
    use super::parse_response;

    #[test]
    fn responses_are_parsed() {
        let response = parse_response(b"HTTP/1.1 404 Not Found\r\nA: b\r\n\r\ntext\r\n\r\n").unwrap();
        assert_eq!((response.status, response.body.as_str()), (404, "text\r\n\r\n"));
        for wrong in
            ["", "HTTP/1.1 200 OK\r\n", "SSH-2.0-x\r\n\r\n", "HTTP/1.1 x\r\n\r\n", "HTTP/1.1\r\n\r\n"]
        {
            assert!(parse_response(wrong.as_bytes()).is_none(), "{wrong}");
        }
    }
}
