//! KCP and QUIC: datagrams with forged senders, and meaningless datagrams.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::net::UdpSocket;
use tokio::time::timeout;

use super::{Attack, AttackContext, End, Form, Outcome, attack};

pub(super) const ATTACKS: [Attack; 5] = [
    attack(
        "kcp_amplification",
        "9",
        "one KCP datagram of 42 bytes from an address that never answers: at most 3 times the bytes go there",
        End::Brief,
        |context| Box::pin(amplify_kcp(context)),
    ),
    attack(
        "kcp_forged_conversations",
        "9",
        "20,000 KCP datagrams from as many ports: new clients must get in meanwhile",
        End::Held("connections, first_byte_timeout"),
        |context| Box::pin(forge(context)),
    ),
    attack(
        "kcp_idle_conversations",
        "9",
        "4,200 KCP conversations of one host, each with one heartbeat: a client of another network must get a slot",
        End::Held("kcp::Config::conversations"),
        |context| Box::pin(occupy(context)),
    ),
    attack(
        "quic_amplification",
        "kin",
        "one QUIC Initial from an address that never answers: at most 3 times the bytes go there",
        End::Brief,
        |context| Box::pin(amplify_quic(context)),
    ),
    attack("datagram_noise", "kin", "datagrams that mean nothing, to KCP and QUIC", End::Brief, |context| {
        Box::pin(noise(context))
    })
    .with_form(Form::FullOnly),
];

/// A KCP datagram that starts a conversation and pushes `data` into it.
fn push(conversation: u32, data: &[u8]) -> Vec<u8> {
    push_at(conversation, 0, data)
}

/// A KCP datagram with this number that pushes `data` into a conversation.
fn push_at(conversation: u32, number: u32, data: &[u8]) -> Vec<u8> {
    let mut segment = conversation.to_le_bytes().to_vec();
    // The command, no fragments, a window of 128.
    segment.extend([81, 0, 128, 0]);
    // The time, the number, what was received.
    segment.extend([0; 4]);
    segment.extend(number.to_le_bytes());
    segment.extend([0; 4]);
    segment.extend((data.len() as u32).to_le_bytes());
    segment.extend(data);
    segment
}

/// Bytes received by a socket that has sent this and never replies.
async fn count_received(context: &AttackContext, address: &str, datagram: &[u8]) -> io::Result<usize> {
    // The spoofed source address, which receives the amplified responses.
    let spoofed = UdpSocket::bind("127.0.0.3:0").await?;
    spoofed.send_to(datagram, address).await?;
    context.count(datagram.len());
    let until = Instant::now() + context.pick(Duration::from_secs(8), Duration::from_millis(2_500));
    let (mut bytes, mut buffer) = (0, [0; 2_048]);
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        match timeout(left, spoofed.recv(&mut buffer)).await {
            Ok(received) => bytes += received?,
            Err(_) => break,
        }
    }
    Ok(bytes)
}

const AMPLIFIED: usize = 3;

async fn amplify_kcp(context: AttackContext) -> io::Result<Outcome> {
    let mut outcome = Outcome::default();
    let large = [&b"GET /nothing-of-that-name HTTP/1.1\r\nHost: "[..], &[b'h'; 900], b"\r\n\r\n"].concat();
    let tries = [("a short request", &b"GET / HTTP/1.0\r\n\r\n"[..]), ("a long one", &large)];
    let tried = join_all(tries.map(async |(name, data)| {
        let datagram = push(7, data);
        let came = count_received(&context, &context.target.kcp, &datagram).await?;
        Ok::<_, io::Error>((name, datagram.len(), came))
    }))
    .await;
    for tried in tried {
        let (name, sent, came) = tried?;
        outcome = outcome
            .note(format!("{name}: {sent} bytes sent, {came} came"))
            .check(came <= AMPLIFIED * sent, format!("{name}: {sent} bytes became {came}"));
    }
    Ok(outcome)
}

async fn forge(context: AttackContext) -> io::Result<Outcome> {
    let count = context.pick(20_000, 8_000);
    let server: SocketAddr = context.target.kcp.parse().map_err(io::Error::other)?;
    for conversation in 1..=count {
        let datagram = push(conversation, b"GET / HTTP/1.1\r\nHost: x");
        // A separate port each, released at once: nothing will reply.
        let socket = UdpSocket::bind("127.0.0.2:0").await?;
        socket.send_to(&datagram, server).await?;
        context.count(datagram.len());
        if conversation % 100 == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    // New clients connect meanwhile.
    tokio::time::sleep(context.profile.window()).await;
    Ok(Outcome { connections: count as usize, ..Outcome::default() })
}

/// A heartbeat of rpcx.
fn heartbeat() -> Vec<u8> {
    let head = [8, 0, 0x40, 0x10, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 16];
    [&head[..], &[0; 16]].concat()
}

/// Waits for a push segment with this number. Returns its acknowledgement, or `None` if none arrives in time.
async fn wait_for_push(socket: &UdpSocket, number: u32) -> io::Result<Option<Vec<u8>>> {
    let until = Instant::now() + Duration::from_secs(1);
    let mut datagram = [0; 2_048];
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        let Ok(length) = timeout(left, socket.recv(&mut datagram)).await else { break };
        let mut rest = &datagram[..length?];
        while let Some((head, data)) = rest.split_first_chunk::<24>() {
            if head[4] == 81 && head[12..16] == number.to_le_bytes() {
                // The conversation, the command, a window of 128, time and number, what was received, no data.
                let next = number.wrapping_add(1).to_le_bytes();
                return Ok(Some([&head[..4], &[82, 0, 128, 0], &head[8..16], &next, &[0; 4]].concat()));
            }
            let length = u32::from_le_bytes([head[20], head[21], head[22], head[23]]);
            rest = data.get(length as usize..).unwrap_or_default();
        }
    }
    Ok(None)
}

/// Sends a heartbeat, repeatedly, and acknowledges its answer. Returns whether there was one.
async fn beat(
    context: &AttackContext,
    socket: &UdpSocket,
    conversation: u32,
    number: u32,
) -> io::Result<bool> {
    for _ in 0..3 {
        let datagram = push_at(conversation, number, &heartbeat());
        context.count(datagram.len());
        socket.send(&datagram).await?;
        if let Some(acknowledgement) = wait_for_push(socket, number).await? {
            socket.send(&acknowledgement).await?;
            return Ok(true);
        }
    }
    Ok(false)
}

async fn occupy(context: AttackContext) -> io::Result<Outcome> {
    const COUNT: u32 = 4_200;
    const TOGETHER: u32 = 60;
    let mut validated = 0;
    for first in (0..COUNT).step_by(TOGETHER as usize) {
        // The socket is not needed once the address is validated: the server keeps its conversation.
        let beats = (first..first + TOGETHER).map(async |conversation| {
            let socket = UdpSocket::bind("127.0.0.2:0").await?;
            socket.connect(&context.target.kcp).await?;
            beat(&context, &socket, conversation, 0).await
        });
        for answered in join_all(beats).await {
            validated += usize::from(answered?);
        }
    }
    let mut outcome = Outcome { connections: validated, ..Outcome::default() };
    for host in 1..=4 {
        let socket = UdpSocket::bind(format!("127.0.{host}.1:0")).await?;
        socket.connect(&context.target.kcp).await?;
        // The first answer validates the address, so only the second one shows that there was a slot.
        let found = beat(&context, &socket, 1, 0).await? && beat(&context, &socket, 1, 1).await?;
        outcome = outcome.check(found, format!("127.0.{host}.1 found no slot"));
    }
    tokio::time::sleep(context.profile.window()).await;
    Ok(outcome)
}

async fn amplify_quic(context: AttackContext) -> io::Result<Outcome> {
    // A long header of an unknown version, as long as an Initial must be: the response is a version negotiation.
    let mut datagram =
        vec![0xc0, 0x0a, 0x0a, 0x0a, 0x0a, 8, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 7, 6, 5, 4, 3, 2, 1];
    datagram.resize(1_200, 0);
    let bytes = count_received(&context, &context.target.quic, &datagram).await?;
    Ok(Outcome::default()
        .note(format!("{} bytes sent, {bytes} came", datagram.len()))
        .check(bytes <= AMPLIFIED * datagram.len(), format!("{} bytes became {bytes}", datagram.len())))
}

async fn noise(context: AttackContext) -> io::Result<Outcome> {
    let socket = UdpSocket::bind("127.0.0.1:0").await?;
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    for n in 0..context.pick(50_000_usize, 5_000) {
        let datagram: Vec<u8> = (0..n % 200)
            .map(|_| {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                seed as u8
            })
            .collect();
        let address = if n % 2 == 0 { &context.target.kcp } else { &context.target.quic };
        let _ = socket.send_to(&datagram, address).await;
        context.count(datagram.len());
        if n % 50 == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    Ok(Outcome::default())
}
