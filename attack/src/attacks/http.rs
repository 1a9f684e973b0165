//! HTTP requests that should be rejected over HTTP, and requests of browsers.

use std::io;

use futures_util::future::join_all;
use polyrpc::Compression;

use super::bombs::bomb;
use super::{Attack, AttackContext, End, Outcome, attack};
use crate::raw::frames;
use crate::service::SECRET;

pub(super) const ATTACKS: [Attack; 3] = [
    attack(
        "browsers",
        "13",
        "what a page of any origin may send: text/plain, GET, DELETE, another origin",
        End::Brief,
        |context| Box::pin(browse(context)),
    ),
    attack(
        "bomb_past_the_limit_http",
        "15",
        "a body that decompresses beyond the limit: 413",
        End::Brief,
        |context| Box::pin(bomb_past_the_limit(context)),
    ),
    attack(
        "hosts",
        "15",
        "HTTP/1.1 without Host, with two, with one that is malformed: 400",
        End::Brief,
        |context| Box::pin(hosts(context)),
    ),
];

/// The status of a response.
fn status(received: &[u8]) -> String {
    let status_line = String::from_utf8_lossy(received).lines().next().unwrap_or_default().to_owned();
    status_line.split(' ').nth(1).unwrap_or("none").to_owned()
}

async fn browse(context: AttackContext) -> io::Result<Outcome> {
    let mut outcome = Outcome::default();
    let ways: [(&str, &str); 9] = [
        ("text/plain", "POST /Bare/Secret HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"),
        // A page cannot prevent its browser from sending the origin of such a request.
        (
            "no content type",
            "POST /Bare/Secret HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n",
        ),
        (
            "a form",
            "POST /Bare/Secret HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n",
        ),
        ("GET", "GET /Bare/Secret HTTP/1.1\r\nHost: localhost\r\n"),
        (
            "GET with JSON",
            "GET /Bare/Secret HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n",
        ),
        ("DELETE", "DELETE /Bare/Secret HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"),
        ("PUT", "PUT /Bare/Secret HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"),
        (
            "another origin",
            "POST /Bare/Secret HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\
             Content-Type: application/json\r\n",
        ),
        (
            "another origin by gRPC-Web",
            "POST /Bare/Secret HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\n\
             Content-Type: application/grpc-web+json\r\n",
        ),
    ];
    let tried = join_all(ways.map(async |(name, head)| {
        let body = if name.ends_with("gRPC-Web") { "\0\0\0\0\x03\"x\"" } else { "\"x\"" };
        let bytes = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
        Ok::<_, io::Error>((name, context.connect().await?.send_and_receive(bytes.as_bytes()).await))
    }))
    .await;
    for tried in tried {
        let (name, received) = tried?;
        let ran = String::from_utf8_lossy(&received).contains(SECRET.trim_matches('"'));
        outcome.connections += 1;
        outcome = outcome.check(!ran, format!("{name}: the method ran (HTTP {})", status(&received)));
    }
    // Allowed requests must succeed.
    let mut connection = context.connect().await?;
    let received =
        connection.send_and_receive(&[&frames::http("/Bare/Secret", "", 3)[..], b"\"x\""].concat()).await;
    Ok(outcome
        .check(status(&received) == "200", format!("POST of JSON: HTTP {}, not 200", status(&received))))
}

async fn bomb_past_the_limit(context: AttackContext) -> io::Result<Outcome> {
    let mut outcome = Outcome::default();
    for (name, coding, compression) in
        [("gzip", "gzip", Compression::Gzip), ("deflate", "deflate", Compression::Zlib)]
    {
        let bomb = bomb(compression, b'1', 80 << 20)?;
        let fields = format!("Content-Encoding: {coding}\r\n");
        let mut connection = context.connect().await?;
        let received = connection
            .send_and_receive(&[frames::http("/Bare/Echo", &fields, bomb.len()), bomb].concat())
            .await;
        outcome.connections += 1;
        outcome =
            outcome.check(status(&received) == "413", format!("{name}: HTTP {}, not 413", status(&received)));
    }
    Ok(outcome)
}

async fn hosts(context: AttackContext) -> io::Result<Outcome> {
    let mut outcome = Outcome::default();
    for (name, hosts) in [
        ("no Host", ""),
        ("two Hosts", "Host: localhost\r\nHost: other\r\n"),
        ("a Host with a blank", "Host: local host\r\n"),
    ] {
        let mut connection = context.connect().await?;
        let request = format!(
            "POST /Bare/Echo HTTP/1.1\r\n{hosts}Content-Type: application/json\r\nContent-Length: 1\r\n\r\n1"
        );
        let received = connection.send_and_receive(request.as_bytes()).await;
        outcome.connections += 1;
        outcome =
            outcome.check(status(&received) == "400", format!("{name}: HTTP {}, not 400", status(&received)));
    }
    Ok(outcome)
}
