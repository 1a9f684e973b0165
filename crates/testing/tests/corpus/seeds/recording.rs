//! Recordings, whole and torn, and files of brpc's `rpc_dump`.

use bytes::Bytes;
use polyrpc_core::Format;
use polyrpc_record::brpc::{self, Numbers};
use polyrpc_record::call::{Failure, Field, Message, Outcome};
use polyrpc_record::{Call, Loss, Schema, Writer};

use super::Seeds;

/// Recordings without their first eight bytes.
pub(super) fn recordings() -> Seeds {
    let whole = recording();
    let cut = |length: usize| whole.get(..length).unwrap_or(&whole).to_vec();
    let damaged = {
        let mut damaged = whole.clone();
        damaged.iter_mut().skip(30).take(1).for_each(|byte| *byte ^= 1);
        damaged
    };
    let named = |name: &str, bytes: Vec<u8>| (name.to_owned(), bytes);
    vec![
        named("empty", Vec::new()),
        named("whole", whole.clone()),
        named("torn", cut(whole.len() / 2)),
        named("unfinished", cut(whole.len() - 16)),
        named("damaged", damaged),
        named("junk_before", [b"PRB1junk", &whole[..]].concat()),
    ]
}

fn recording() -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).expect("memory");
    writer.schema(&Schema::new(super::rich())).expect("memory");
    writer.call(&call()).expect("memory");
    writer.flush().expect("memory");
    writer.call(&Call::default()).expect("memory");
    writer.loss(&Loss { queue_full: 3, ..Loss::default() }).expect("memory");
    writer.finish().expect("memory").split_off(8)
}

fn call() -> Call {
    Call {
        arrival: 1,
        protocol: "baidu_std".into(),
        service: "example.EchoService".into(),
        method: "Echo".into(),
        request: Some(Message::new(Format::Protobuf, Bytes::from_static(b"\x0a\x02hi"))),
        metadata: vec![Field { name: "k".into(), value: Bytes::from_static(b"v"), removed: false }],
        attachment: Bytes::from_static(b"at"),
        outcome: Some(Outcome { failure: Some(Failure::default()), ..Outcome::default() }),
        ..Call::default()
    }
}

pub(super) fn dumps() -> Seeds {
    let mut whole = Vec::new();
    for numbers in [Numbers::UpTo117, Numbers::After117] {
        brpc::export(&call(), numbers, &mut whole).expect("memory").expect("a call of baidu_std");
    }
    let http = b"POST /EchoService/Echo HTTP/1.1\r\nContent-Type: application/json\r\n\r\n{}";
    let meta = b"\x28\x07\x30\x02";
    let lengths = [(meta.len() + http.len()) as u32, meta.len() as u32].map(u32::to_be_bytes).concat();
    let http = [b"PRPC", &lengths[..], meta, http].concat();
    let torn = whole.get(..whole.len() - 3).unwrap_or_default().to_vec();
    let named = |name: &str, bytes: Vec<u8>| (name.to_owned(), bytes);
    vec![
        named("baidu_std", whole),
        named("http", http),
        named("torn", torn),
        named("junk", b"XRPC\0\0\0\0\0\0\0\0".to_vec()),
    ]
}
