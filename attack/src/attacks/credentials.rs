//! Credentials: who inherits another's, who may guess, what strangers are told.

use std::io;
use std::time::{Duration, Instant};

use super::{Attack, End, Outcome, Siege, attack};
use crate::raw::frames;
use crate::raw::h2::{self, Frames, grpc_head, grpc_message, json_head};
use crate::service::{SECRET, TOKEN};

pub(super) const ATTACKS: [Attack; 4] = [
    attack(
        "inherited_credential_http1",
        "6",
        "one HTTP/1.1 connection: a call with the right token, then calls without one",
        End::Brief,
        |siege| Box::pin(inherit_http1(siege)),
    ),
    attack(
        "inherited_credential_http2",
        "6",
        "one HTTP/2 connection: a call with the right token, then calls without one",
        End::Brief,
        |siege| Box::pin(inherit_http2(siege)),
    ),
    attack(
        "wrong_tokens",
        "12",
        "10,000 wrong tokens on one connection, by rpcx, gRPC and HTTP/1.1",
        End::Brief,
        |siege| Box::pin(guess(siege)),
    ),
    attack(
        "strangers_questions",
        "14",
        "what the services are called, asked without a token: /version, reflection, unknown names",
        End::Brief,
        |siege| Box::pin(ask_for_names(siege)),
    ),
];

/// The handler's own words, whatever the protocol puts around them.
fn ran(heard: &[u8]) -> bool {
    contains(heard, SECRET.trim_matches('"'))
}

fn contains(heard: &[u8], text: &str) -> bool {
    heard.windows(text.len()).any(|window| window == text.as_bytes())
}

async fn inherit_http1(siege: Siege) -> io::Result<Outcome> {
    let mut outcome = Outcome::default();
    let json_rpc = r#"{"jsonrpc":"2.0","method":"Bare.Secret","params":"x","id":1}"#;
    let ways = [
        ("HTTP", "/Bare/Secret", "application/json", b"\"x\"".to_vec()),
        ("JSON-RPC", "/", "application/json", json_rpc.as_bytes().to_vec()),
        ("gRPC-Web", "/Bare/Secret", "application/grpc-web", grpc_message(0, b"x")),
    ];
    for (first, first_path, first_kind, first_body) in &ways {
        for (second, path, kind, body) in &ways {
            let mut line = siege.line_to(&siege.target.guarded).await?;
            let granted = line
                .ask(&request(first_path, first_kind, &format!("Authorization: {TOKEN}\r\n"), first_body))
                .await;
            let inherited = line.ask(&request(path, kind, "", body)).await;
            let other = line.ask(&request(path, kind, "Authorization: other\r\n", body)).await;
            outcome.connections += 1;
            outcome = outcome
                .check(ran(&granted), format!("{first}: the right token is refused"))
                .check(
                    !ran(&inherited),
                    format!("{second} without a token behind {first} with one: the method ran"),
                )
                .check(!ran(&other), format!("{second} with a wrong token behind {first}: the method ran"));
        }
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

async fn inherit_http2(siege: Siege) -> io::Result<Outcome> {
    let mut outcome = Outcome::default();
    let with_token = [("authorization", TOKEN)];
    for granted_head in [grpc_head("/Bare/Secret", &with_token), json_head("/Bare/Secret", &with_token)] {
        let mut line = siege.line_to(&siege.target.guarded).await?;
        let mut frames = Frames::begin();
        frames.call(1, &granted_head, b"\"x\"");
        let granted = line.ask(&frames.bytes).await;
        outcome.connections += 1;
        outcome = outcome.check(ran(&granted), "the right token is refused");
        for (stream, head, name) in
            [(3, grpc_head("/Bare/Secret", &[]), "gRPC"), (5, json_head("/Bare/Secret", &[]), "JSON")]
        {
            let mut frames = Frames::default();
            frames.call(stream, &head, b"\"x\"");
            let inherited = line.ask(&frames.bytes).await;
            outcome = outcome.check(!ran(&inherited), format!("{name} without a token: the method ran"));
        }
    }
    Ok(outcome)
}

/// Guesses go on as fast as they are answered; each protocol's are counted.
async fn guess(siege: Siege) -> io::Result<Outcome> {
    const GUESSES: usize = 10_000;
    let time = siege.pick(Duration::from_secs(3), Duration::from_secs(1));
    let http =
        |n: usize| request("/Bare/Secret", "application/json", &format!("Authorization: {n}\r\n"), b"1");
    let grpc = |n: usize| {
        let mut frames = if n == 0 { Frames::begin() } else { Frames::default() };
        let token = n.to_string();
        frames.call(h2::stream(n), &grpc_head("/Bare/Secret", &[("authorization", &token)]), b"x");
        frames.bytes
    };
    let ways: [(&str, &dyn Fn(usize) -> Vec<u8>); 2] = [("HTTP/1.1", &http), ("gRPC", &grpc)];
    let mut outcome = Outcome::default();
    for (name, guess) in ways {
        let mut line = siege.line_to(&siege.target.guarded).await?.with_streams(usize::MAX);
        let begun = Instant::now();
        let mut answered = 0;
        while answered < GUESSES && begun.elapsed() < time && !line.is_closed() {
            line.heard.clear();
            line.send(&guess(answered)).await;
            if !line.wait_for_words(time.saturating_sub(begun.elapsed())).await {
                break;
            }
            answered += 1;
        }
        // Ten are answered at once, one more each second.
        let most = 10 + 2 * time.as_secs() as usize + 5;
        outcome.connections += 1;
        outcome = outcome
            .note(format!(
                "{name}: {answered} wrong tokens answered in {:.1} s",
                begun.elapsed().as_secs_f64()
            ))
            .check(answered <= most, format!("{name}: {answered} guesses were not slowed"));
    }
    Ok(outcome)
}

/// Words that only those with a token may hear.
const NAMES: [&str; 3] = ["Bare", "Plain", "grpc.health"];

async fn ask_for_names(siege: Siege) -> io::Result<Outcome> {
    let mut outcome = Outcome::default();
    for path in ["/version", "/status", "/health", "/list", "/protobufs", "/metrics", "/brpc_metrics", "/"] {
        let mut line = siege.line_to(&siege.target.guarded).await?;
        let heard = line.ask(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).await;
        let told: Vec<_> = NAMES.into_iter().filter(|name| contains(&heard, name)).collect();
        outcome.connections += 1;
        outcome = outcome.check(told.is_empty(), format!("GET {path} tells {}", told.join(", ")));
    }
    // Whether a method exists is told by the difference of two answers.
    for (protocol, known, unknown) in [
        ("rpcx", frames::rpcx("Bare", "Secret", 1, b"x"), frames::rpcx("Bare", "Secrex", 1, b"x")),
        (
            "baidu_std",
            frames::baidu_std("Bare", "Secret", 1, 0, b"x"),
            frames::baidu_std("Bare", "Secrex", 1, 0, b"x"),
        ),
        ("gRPC", whole_grpc_call("/Bare/Secret"), whole_grpc_call("/Bare/Secrex")),
        (
            "HTTP/1.1",
            request("/Bare/Secret", "application/json", "", b"1"),
            request("/Bare/Secrex", "application/json", "", b"1"),
        ),
    ] {
        let known = siege.line_to(&siege.target.guarded).await?.ask(&known).await;
        let unknown = siege.line_to(&siege.target.guarded).await?.ask(&unknown).await;
        outcome.connections += 2;
        let echoed = String::from_utf8_lossy(&unknown).replace("Secrex", "Secret");
        outcome = outcome.check(
            echoed == String::from_utf8_lossy(&known),
            format!("{protocol}: strangers can tell whether a method exists"),
        );
    }
    Ok(outcome)
}

fn whole_grpc_call(path: &str) -> Vec<u8> {
    let mut frames = Frames::begin();
    frames.call(1, &grpc_head(path, &[]), b"x");
    frames.bytes
}
