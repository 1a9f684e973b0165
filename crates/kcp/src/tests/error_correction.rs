use std::sync::Arc;

use bytes::BytesMut;
use polyrpc_core::testing::hex;

use crate::fec::{Code, Decoder, Encoder, HEADER, OVERHEAD, Shard};
use crate::{Algorithm, Cipher, Config, Millis, Session, Settings, Shards, derive_key};

/// Returns datagrams captured from `kcp-go`, with their configurations.
fn recorded() -> [(&'static str, Config); 5] {
    let key = derive_key(b"rpcx-key", b"rpcx-salt", 4096);
    let rpcx = |algorithm| Config::rpcx(Cipher::new(algorithm, &key).unwrap());
    let shards = |data, parity| Config { shards: Some(Shards { data, parity }), ..Config::default() };
    [
        (include_str!("../../vectors/kcp/plain.txt"), Config::default()),
        (include_str!("../../vectors/kcp/none-10-3.txt"), rpcx(Algorithm::None)),
        (include_str!("../../vectors/kcp/aes-10-3.txt"), rpcx(Algorithm::Aes)),
        (include_str!("../../vectors/kcp/shards-3-2.txt"), shards(3, 2)),
        (include_str!("../../vectors/kcp/shards-17-5.txt"), shards(17, 5)),
    ]
}

fn bytes(line: &str) -> Vec<u8> {
    hex(line).to_vec()
}

fn messages() -> Vec<u8> {
    let message = |i: usize| (0..5 + 29 * i % 211).map(move |k| (i + 3 * k) as u8);
    (0..20).flat_map(message).collect()
}

/// Returns the data that a session reads from these datagrams.
fn read(config: Config, datagrams: impl Iterator<Item = Vec<u8>>) -> BytesMut {
    let settings = Arc::new(Settings::new(config).unwrap());
    let mut session = Session::new(settings.clone(), 0x0102_0304, [1; 32], Millis(0));
    let mut into = BytesMut::new();
    for mut datagram in datagrams {
        session.handle(Millis(5), settings.open(&mut datagram).expect("the checksum is right"));
        session.read(Millis(5), &mut into, usize::MAX);
    }
    into
}

#[test]
fn datagrams_recorded_from_kcp_go_are_read() {
    for (recorded, config) in recorded() {
        assert!(read(config, recorded.lines().map(bytes)) == messages());
    }
}

#[test]
fn peer_without_parity_reads_one_with_parity() {
    for (recorded, config) in recorded() {
        assert!(read(Config { shards: None, ..config }, recorded.lines().map(bytes)) == messages());
    }
}

#[test]
fn as_many_datagrams_as_parity_shards_may_be_lost() {
    for (recorded, config) in recorded() {
        let Some(Shards { data, parity }) = config.shards else { continue };
        let (data, parity) = (usize::from(data), usize::from(parity));
        let groups = recorded.lines().count() / (data + parity);
        for first in 0..data {
            // The lost ones differ from group to group; the incomplete last group has no parity.
            let is_lost = |index: usize| {
                let (group, index) = (index / (data + parity), index % (data + parity));
                group < groups && (index + group + data + parity - first) % (data + parity) < parity
            };
            let arrived = recorded.lines().enumerate().filter(|(index, _)| !is_lost(*index));
            let arrived = arrived.map(|(_, line)| bytes(line));
            assert!(read(config.clone(), arrived) == messages(), "{data} and {parity}, from {first}");
        }
    }
}

#[test]
fn parity_equals_that_of_kcp_go() {
    for (recorded, config) in recorded() {
        let Some(shards) = config.shards else { continue };
        let settings = Settings::new(config).unwrap();
        let outside = settings.envelope.overhead();
        let code = Arc::new(Code::new(shards).unwrap());
        let mut encoder = Encoder::new(shards, code);
        let mut written = Vec::new();
        let mut recorded_parity = Vec::new();
        for line in recorded.lines() {
            let mut datagram = bytes(line);
            match settings.open(&mut datagram).unwrap().shard {
                Shard::Parity { seqid, bytes } => recorded_parity.push((seqid, bytes.to_vec())),
                Shard::Data { segments, .. } => {
                    let mut ours = vec![0; OVERHEAD];
                    ours.extend_from_slice(segments);
                    let is_last = encoder.protect(&mut ours);
                    assert!(ours == datagram[outside..], "data");
                    if is_last {
                        encoder.parity(|header, parity| written.push((header, parity.to_vec())));
                    }
                }
            }
        }
        assert_eq!(written.len(), recorded_parity.len());
        for ((header, ours), (seqid, theirs)) in written.iter().zip(&recorded_parity) {
            assert!(header[..4] == seqid.to_le_bytes() && ours == theirs);
        }
    }
}

#[test]
fn every_shard_count_has_a_code() {
    for (data, parity) in [(1, 1), (1, 255), (255, 1), (128, 128), (10, 3), (40, 60)] {
        let shards = Shards { data, parity };
        let code = Arc::new(Code::new(shards).unwrap());
        let (mut encoder, mut decoder) = (Encoder::new(shards, code.clone()), Decoder::new(shards, code));
        let mut recovered = Vec::new();
        let lost = usize::from(parity).min(usize::from(data));
        for index in 0..data {
            let mut datagram = vec![index; OVERHEAD + 3 + usize::from(index % 7)];
            let is_last = encoder.protect(&mut datagram);
            assert_eq!(is_last, index == data - 1);
            if usize::from(index) >= lost {
                recovered.extend(decoder.take(u32::from(index), true, &datagram[HEADER..]));
            }
        }
        encoder.parity(|header, parity| {
            let [a, b, c, d, ..] = header;
            recovered.extend(decoder.take(u32::from_le_bytes([a, b, c, d]), false, parity));
        });
        assert_eq!(recovered.len(), lost, "{data} and {parity}");
        for (index, shard) in recovered.iter().enumerate() {
            assert!(crate::fec::strip_padding(shard).unwrap().iter().all(|&byte| usize::from(byte) == index));
        }
    }
}
