//! Credentials: inheritance between calls, guessing, and information that unauthenticated callers can obtain.

use std::io;
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use super::{Attack, AttackContext, End, Outcome, attack};
use crate::raw::frames;
use crate::raw::h2::{self, Frames, grpc_head, grpc_message, json_head};
use crate::service::{SECRET, TOKEN};

pub(super) const ATTACKS: [Attack; 4] = [
    attack(
        "inherited_credential_http1",
        "6",
        "one HTTP/1.1 connection: a call with the right token, then calls without one",
        End::Brief,
        |context| Box::pin(inherit_http1(context)),
    ),
    attack(
        "inherited_credential_http2",
        "6",
        "one HTTP/2 connection: a call with the right token, then calls without one",
        End::Brief,
        |context| Box::pin(inherit_http2(context)),
    ),
    attack(
        "wrong_tokens",
        "12",
        "as many wrong tokens as are answered, up to 10,000 by each protocol",
        End::Brief,
        |context| Box::pin(guess(context)),
    ),
    attack(
        "unauthenticated_requests",
        "14",
        "what the services are called, asked without a token: /version, reflection, unknown names",
        End::Brief,
        |context| Box::pin(request_server_names(context)),
    ),
];

/// The handler's own text, without what the protocol adds.
fn has_run(received: &[u8]) -> bool {
    contains(received, SECRET.trim_matches('"'))
}

fn contains(received: &[u8], text: &str) -> bool {
    received.windows(text.len()).any(|window| window == text.as_bytes())
}

async fn inherit_http1(context: AttackContext) -> io::Result<Outcome> {
    let mut outcome = Outcome::default();
    let json_rpc = r#"{"jsonrpc":"2.0","method":"Bare.Secret","params":"x","id":1}"#;
    let ways = [
        ("HTTP", "/Bare/Secret", "application/json", b"\"x\"".to_vec()),
        ("JSON-RPC", "/", "application/json", json_rpc.as_bytes().to_vec()),
        ("gRPC-Web", "/Bare/Secret", "application/grpc-web", grpc_message(0, b"x")),
    ];
    let pairs = ways.iter().flat_map(|first| ways.iter().map(move |second| (first, second)));
    let tried = join_all(pairs.map(async |((first, first_path, first_kind, first_body), second)| {
        let (second, path, kind, body) = second;
        let mut connection = context.connect_to(&context.target.guarded).await?;
        let token = format!("Authorization: {TOKEN}\r\n");
        let granted = connection.send_and_receive(&request(first_path, first_kind, &token, first_body)).await;
        let inherited = connection.send_and_receive(&request(path, kind, "", body)).await;
        let other = connection.send_and_receive(&request(path, kind, "Authorization: other\r\n", body)).await;
        Ok::<_, io::Error>((*first, *second, granted, inherited, other))
    }))
    .await;
    for tried in tried {
        let (first, second, granted, inherited, other) = tried?;
        outcome.connections += 1;
        outcome = outcome
            .check(has_run(&granted), format!("{first}: the right token is refused"))
            .check(
                !has_run(&inherited),
                format!("{second} without a token behind {first} with one: the method ran"),
            )
            .check(!has_run(&other), format!("{second} with a wrong token behind {first}: the method ran"));
    }
    Ok(outcome)
}

fn request(path: &str, kind: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n{fields}Content-Length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

async fn inherit_http2(context: AttackContext) -> io::Result<Outcome> {
    let mut outcome = Outcome::default();
    let with_token = [("authorization", TOKEN)];
    for granted_head in [grpc_head("/Bare/Secret", &with_token), json_head("/Bare/Secret", &with_token)] {
        let mut connection = context.connect_to(&context.target.guarded).await?;
        let mut frames = Frames::begin();
        frames.call(1, &granted_head, b"\"x\"");
        let granted = connection.send_and_receive(&frames.bytes).await;
        outcome.connections += 1;
        outcome = outcome.check(has_run(&granted), "the right token is refused");
        for (stream, head, name) in
            [(3, grpc_head("/Bare/Secret", &[]), "gRPC"), (5, json_head("/Bare/Secret", &[]), "JSON")]
        {
            let mut frames = Frames::default();
            frames.call(stream, &head, b"\"x\"");
            let inherited = connection.send_and_receive(&frames.bytes).await;
            outcome = outcome.check(!has_run(&inherited), format!("{name} without a token: the method ran"));
        }
    }
    Ok(outcome)
}

/// Guesses as fast as they are answered, on a new connection if the server closes the old one; counted per
/// protocol.
async fn guess(context: AttackContext) -> io::Result<Outcome> {
    let time = context.pick(Duration::from_secs(4), Duration::from_millis(1_500));
    let http =
        |n: usize| request("/Bare/Secret", "application/json", &format!("Authorization: {n}\r\n"), b"1");
    let rpcx = |n: usize| frames::rpcx_with(&n.to_string(), "Bare", "Secret", n as u64, b"x");
    let baidu_std = |n: usize| frames::baidu_std_with(&n.to_string(), "Bare", "Secret", n as u64, b"x");
    let ways: [(&str, &dyn Fn(usize) -> Vec<u8>); 4] =
        [("HTTP/1.1", &http), ("gRPC", &grpc_guess), ("rpcx", &rpcx), ("baidu_std", &baidu_std)];
    let tried = join_all(ways.map(async |(name, guess)| {
        let (answered, connections) = guesses(&context, time, guess).await?;
        Ok::<_, io::Error>((name, answered, connections))
    }))
    .await;
    let mut outcome = Outcome::default();
    let mut all = 0;
    for tried in tried {
        let (name, answered, connections) = tried?;
        all += answered;
        outcome.connections += connections;
        outcome =
            outcome.note(format!("{name}: {answered} wrong tokens answered in {:.1} s", time.as_secs_f64()));
    }
    // Ten from this address are answered at once, then one per connection and second, plus some slack.
    let max = 10 + ways.len() * (time.as_secs() as usize + 1) + 6;
    Ok(outcome.check(all <= max, format!("{all} guesses were answered, not {max}")))
}

fn grpc_guess(n: usize) -> Vec<u8> {
    let mut frames = if n == 0 { Frames::begin() } else { Frames::default() };
    let token = n.to_string();
    frames.call(h2::stream(n), &grpc_head("/Bare/Secret", &[("authorization", &token)]), b"x");
    frames.bytes
}

/// Number of guesses answered in this time, and of connections.
async fn guesses(
    context: &AttackContext,
    time: Duration,
    guess: &dyn Fn(usize) -> Vec<u8>,
) -> io::Result<(usize, usize)> {
    const GUESSES: usize = 10_000;
    let (mut answered, mut connections) = (0, 0);
    let begun = Instant::now();
    while answered < GUESSES && begun.elapsed() < time {
        let mut connection = context.connect_to(&context.target.guarded).await?;
        connections += 1;
        for n in 0..GUESSES {
            connection.received.clear();
            connection.send(&guess(n)).await;
            answered += usize::from(connection.wait_for_response(time.saturating_sub(begun.elapsed())).await);
            if connection.is_closed() || begun.elapsed() >= time {
                break;
            }
        }
    }
    Ok((answered, connections))
}

/// Texts that only authenticated callers may receive.
const NAMES: [&str; 3] = ["Bare", "Plain", "grpc.health"];

/// After this time the server has forgiven the requests for paths.
const FORGIVEN: Duration = Duration::from_secs(8);

async fn request_server_names(context: AttackContext) -> io::Result<Outcome> {
    let mut outcome = Outcome::default();
    let paths = ["/version", "/status", "/health", "/list", "/protobufs", "/metrics", "/brpc_metrics", "/"];
    let tried = join_all(paths.map(async |path| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let mut connection = context.connect_to(&context.target.guarded).await?;
        Ok::<_, io::Error>((path, connection.send_and_receive(request.as_bytes()).await))
    }))
    .await;
    for tried in tried {
        let (path, received) = tried?;
        let found: Vec<_> = NAMES.into_iter().filter(|name| contains(&received, name)).collect();
        outcome.connections += 1;
        outcome = outcome.check(found.is_empty(), format!("GET {path} tells {}", found.join(", ")));
    }
    // A peer that has failed ten times within ten seconds gets delayed responses, and a missing one would differ.
    tokio::time::sleep(FORGIVEN).await;
    // A difference between two responses reveals whether a method exists.
    let pairs = [
        ("rpcx", frames::rpcx("Bare", "Secret", 1, b"x"), frames::rpcx("Bare", "Secrex", 1, b"x")),
        (
            "baidu_std",
            frames::baidu_std("Bare", "Secret", 1, 0, b"x"),
            frames::baidu_std("Bare", "Secrex", 1, 0, b"x"),
        ),
        ("gRPC", complete_grpc_call("/Bare/Secret"), complete_grpc_call("/Bare/Secrex")),
        (
            "HTTP/1.1",
            request("/Bare/Secret", "application/json", "", b"1"),
            request("/Bare/Secrex", "application/json", "", b"1"),
        ),
    ];
    let tried = join_all(pairs.map(async |(protocol, known, unknown)| {
        let known = context.connect_to(&context.target.guarded).await?.send_and_receive(&known).await;
        let unknown = context.connect_to(&context.target.guarded).await?.send_and_receive(&unknown).await;
        Ok::<_, io::Error>((protocol, known, unknown))
    }))
    .await;
    for tried in tried {
        let (protocol, known, unknown) = tried?;
        outcome.connections += 2;
        let echoed = String::from_utf8_lossy(&unknown).replace("Secrex", "Secret");
        outcome = outcome.check(
            echoed == String::from_utf8_lossy(&known),
            format!("{protocol}: unauthenticated callers can tell whether a method exists"),
        );
    }
    Ok(outcome)
}

fn complete_grpc_call(path: &str) -> Vec<u8> {
    let mut frames = Frames::begin();
    frames.call(1, &grpc_head(path, &[]), b"x");
    frames.bytes
}
