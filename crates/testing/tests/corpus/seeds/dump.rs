//! Files of captured packets, with a conversation of each protocol.

use super::{Seeds, Side, conversation, fb_rpc};

/// Conversations that were captured from real peers, as the packets of a connection.
pub(super) fn captures() -> Seeds {
    let body = "\"Ann\"";
    let rest = format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let request = format!("POST /a.B/C HTTP/1.1\r\nHost: h\r\n{rest}").into_bytes();
    let whole = capture(&request, format!("HTTP/1.1 200 OK\r\n{rest}").as_bytes());
    let torn = whole.get(..whole.len() - 9).unwrap_or_default().to_vec();
    let frame = |direction| fb_rpc(direction).first().map_or_else(Vec::new, |(_, bytes)| bytes[2..].to_vec());
    let written = [
        ("empty", Vec::new()),
        ("http", whole),
        ("torn", torn),
        ("pcapng", pcapng(&request)),
        ("fb_rpc", capture(&frame("frpc_request"), &frame("frpc_response"))),
    ];
    let captured = CAPTURED.map(|(folder, name)| {
        let [client, server] = [Side::Server, Side::Client].map(|side| conversation(folder, name, side));
        (name, capture(&client, &server))
    });
    written.into_iter().chain(captured).map(|(name, file)| (name.to_owned(), file)).collect()
}

const CAPTURED: [(&str, &str); 6] = [
    ("baidu_std", "attachment"),
    ("rpcx", "two_calls"),
    ("rest_rpc", "w2_add"),
    ("rest_rpc", "w6_echo"),
    ("netrpc", "gob_mul"),
    ("http", "grpc_ok"),
];

/// A pcap file of packets of IP, each of which has a part of the bytes.
fn capture(client: &[u8], server: &[u8]) -> Vec<u8> {
    let mut file = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 1 << 16, 101].map(u32::to_le_bytes).concat();
    let mut sequences = [1_u32; 2];
    for (side, bytes) in [(0, client), (1, server)] {
        for chunk in bytes.chunks(1000) {
            let packet = packet(side, sequences[side], chunk);
            sequences[side] += chunk.len() as u32;
            let length = packet.len() as u32;
            file.extend([1, 0, length, length].map(u32::to_le_bytes).concat());
            file.extend(packet);
        }
    }
    file
}

fn pcapng(client: &[u8]) -> Vec<u8> {
    let packet = packet(0, 1, client);
    let block = |kind: u32, content: &[u8]| {
        let padded = [content, &[0; 3][..content.len().wrapping_neg() % 4]].concat();
        let length = (padded.len() as u32 + 12).to_le_bytes();
        [&kind.to_le_bytes()[..], &length, &padded, &length].concat()
    };
    let length = (packet.len() as u32).to_le_bytes();
    let enhanced = [&[0; 12][..], &length, &length, &packet].concat();
    [
        block(0x0a0d_0d0a, &[&0x1a2b_3c4d_u32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat()),
        block(1, &[101, 0, 0, 0, 0, 0, 1, 0]),
        block(6, &enhanced),
    ]
    .concat()
}

fn packet(side: usize, sequence: u32, content: &[u8]) -> Vec<u8> {
    let mut ports = [50_000_u16, 8002];
    if side == 1 {
        ports.reverse();
    }
    let length = (40 + content.len()) as u16;
    let mut packet = [&[0x45, 0][..], &length.to_be_bytes(), &[0, 0, 0x40, 0, 64, 6, 0, 0]].concat();
    packet.extend([127, 0, 0, 1].repeat(2));
    packet.extend(ports.map(u16::to_be_bytes).concat());
    packet.extend(sequence.to_be_bytes());
    packet.extend([0, 0, 0, 0, 0x50, 0x18, 0, 0, 0, 0, 0, 0]);
    packet.extend(content);
    packet
}
