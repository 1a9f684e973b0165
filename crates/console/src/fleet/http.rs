//! Requests to other servers' pages: HTTP/1.0, so that an answer ends with its connection.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: String,
}

/// Time for an answer to come.
const TIME: Duration = Duration::from_secs(3);

/// Maximum length of an answer.
const MAX_ANSWER_SIZE: usize = 1 << 20;

/// Requests a page from the server at `host:port`.
///
/// # Errors
///
/// Why there is no answer, in a few words.
pub(super) async fn get(
    address: &str,
    target: &str,
    accept: &str,
    token: Option<&str>,
) -> Result<Answer, String> {
    match timeout(TIME, exchange(address, target, accept, token)).await {
        Ok(Ok(answer)) => parse_answer(&answer).ok_or_else(|| "no HTTP".to_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", TIME.as_secs())),
    }
}

async fn exchange(address: &str, target: &str, accept: &str, token: Option<&str>) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await?;
    let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let request = format!("GET {target} HTTP/1.0\r\nHost: {address}\r\nAccept: {accept}\r\n{token}\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER_SIZE as u64 + 1).read_to_end(&mut answer).await?;
    match answer.len() > MAX_ANSWER_SIZE {
        true => Err(io::Error::other("its answer is too long")),
        false => Ok(answer),
    }
}

fn parse_answer(answer: &[u8]) -> Option<Answer> {
    let end = answer.windows(4).position(|end| end == b"\r\n\r\n")?;
    let (head, body) = (answer.get(..end)?, answer.get(end + 4..)?);
    let line = head.split(|byte| *byte == b'\r').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let status = words.next().filter(|version| version.starts_with("HTTP/1.")).and_then(|_| words.next())?;
    Some(Answer { status: status.parse().ok()?, body: String::from_utf8_lossy(body).into_owned() })
}

#[cfg(test)]
mod tests {
    use super::parse_answer;

    #[test]
    fn answers_are_parsed() {
        let answer = parse_answer(b"HTTP/1.1 404 Not Found\r\nA: b\r\n\r\ntext\r\n\r\n").unwrap();
        assert_eq!((answer.status, answer.body.as_str()), (404, "text\r\n\r\n"));
        for wrong in
            ["", "HTTP/1.1 200 OK\r\n", "SSH-2.0-x\r\n\r\n", "HTTP/1.1 x\r\n\r\n", "HTTP/1.1\r\n\r\n"]
        {
            assert!(parse_answer(wrong.as_bytes()).is_none(), "{wrong}");
        }
    }
}
