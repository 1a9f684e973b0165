//! Datagrams of `kcp-go`.

use polyrpc_core::testing::hex;

use super::Seeds;

/// Each conversation unchanged, and with some datagrams missing and others late.
pub(super) fn conversations() -> Seeds {
    let recorded = [
        ("plain", 2 | 16, include_str!("../../../../../vectors/kcp/plain.txt")),
        ("answered", 1 | 2, include_str!("../../../../../vectors/kcp/plain.txt")),
        ("unread", 0, include_str!("../../../../../vectors/kcp/plain.txt")),
        ("checksum", 2 | 8, include_str!("../../../../../vectors/kcp/none-10-3.txt")),
        ("parity", 2 | 4, include_str!("../../../../../vectors/kcp/shards-3-2.txt")),
    ];
    let both = |(name, bits, lines): (&str, u8, &str)| {
        let datagrams: Vec<_> = lines
            .lines()
            .map(|line| hex(line).to_vec())
            .filter(|datagram| datagram.len() < 256)
            .take(16)
            .collect();
        let missing =
            datagrams.iter().skip(1).step_by(2).chain(datagrams.iter().take(1)).cloned().collect::<Vec<_>>();
        [(name.to_owned(), input(bits, &datagrams)), (format!("{name}_missing"), input(bits, &missing))]
    };
    recorded.into_iter().flat_map(both).collect()
}

fn input(bits: u8, datagrams: &[Vec<u8>]) -> Vec<u8> {
    let mut input = vec![7, bits];
    for datagram in datagrams {
        input.extend_from_slice(&[datagram.len() as u8, 12]);
        input.extend_from_slice(datagram);
    }
    input
}
