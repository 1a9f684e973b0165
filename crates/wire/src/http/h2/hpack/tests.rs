use std::sync::Arc;

use super::*;

type Pairs<'a> = &'a [(&'a str, &'a str)];

fn bytes(hex: &str) -> Vec<u8> {
    polyrpc_core::testing::hex(hex).into()
}

fn list(fields: Pairs<'_>) -> Fields {
    fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect()
}

fn decoder() -> Decoder {
    Decoder::new(4096, 16 << 10)
}

const FIRST: Pairs<'_> =
    &[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "www.example.com")];

#[test]
fn rfc_requests_are_decoded_with_and_without_huffman_coding() {
    // RFC 7541, C.3 and C.4.
    let plain = [
        "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
        "8286 84be 5808 6e6f 2d63 6163 6865",
        "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
    ];
    let coded = [
        "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        "8286 84be 5886 a8eb 1064 9cbf",
        "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
    ];
    let second = [FIRST, &[("cache-control", "no-cache")]].concat();
    let third: Pairs<'_> = &[
        (":method", "GET"),
        (":scheme", "https"),
        (":path", "/index.html"),
        (":authority", "www.example.com"),
        ("custom-key", "custom-value"),
    ];
    for blocks in [plain, coded] {
        let mut decoder = decoder();
        for (block, want) in blocks.iter().zip([FIRST, &second, third]) {
            assert_eq!(*decoder.decode(&bytes(block)).unwrap(), list(want));
        }
    }
}

#[test]
fn rfc_responses_evict_entries() {
    // RFC 7541, C.6: a table of 256 bytes.
    let mut decoder = Decoder::new(256, 16 << 10);
    let blocks = [
        "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad 1718 \
         63c7 8f0b 97c8 e9ae 82ae 43d3",
        "4883 640e ffc1 c0bf",
        "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 e6c7 \
         b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
    ];
    let lists: Vec<_> = blocks.iter().map(|block| decoder.decode(&bytes(block)).unwrap()).collect();
    assert_eq!(lists[0].get(b":status"), Some(&b"302"[..]));
    assert_eq!(lists[1].get(b":status"), Some(&b"307"[..]));
    assert_eq!(lists[1].get(b"location"), Some(&b"https://www.example.com"[..]));
    assert_eq!(lists[2].get(b"content-encoding"), Some(&b"gzip"[..]));
    let cookie = b"foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1";
    assert_eq!(lists[2].get(b"set-cookie"), Some(&cookie[..]));
}

#[test]
fn encoder_and_decoder_agree_while_tables_fill_and_shrink() {
    let (mut encoder, mut decoder) = (Encoder::new(), decoder());
    let kinds = [Indexing::Likely, Indexing::Unlikely, Indexing::Never];
    for round in 0..2000_usize {
        let mut block = Vec::new();
        if round % 97 == 0 {
            let size = [0, 100, 4096, 300][round / 97 % 4];
            encoder.resize(size);
            decoder.allow(size);
        }
        encoder.begin(&mut block);
        let fields: Vec<_> = (0..round % 7)
            .map(|n| {
                (format!("name-{}", (round + n) % 50), format!("value {}", round * n % 90), kinds[n % 3])
            })
            .chain([(":path".to_owned(), format!("/{}", round % 3), Indexing::Likely)])
            .collect();
        for (name, value, indexing) in &fields {
            encoder.field(name.as_bytes(), value.as_bytes(), *indexing, &mut block);
        }
        let want: Fields =
            fields.iter().map(|(name, value, _)| (name.as_bytes(), value.as_bytes())).collect();
        assert_eq!(*decoder.decode(&block).unwrap(), want, "round {round}");
    }
}

#[test]
fn repeated_block_is_not_decoded_again() {
    let mut decoder = decoder();
    let block = bytes("8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d");
    let (first, second) = (decoder.decode(&block).unwrap(), decoder.decode(&block).unwrap());
    assert!(!std::sync::Arc::ptr_eq(&first, &second), "each adds an entry");
    let indexed = bytes("8286 84be");
    let (first, second) = (decoder.decode(&indexed).unwrap(), decoder.decode(&indexed).unwrap());
    assert!(std::sync::Arc::ptr_eq(&first, &second));
}

#[test]
fn same_block_is_decoded_again_after_a_table_change() {
    let mut decoder = decoder();
    decoder.decode(&bytes("4001 6101 31")).unwrap();
    assert_eq!(*decoder.decode(&bytes("be")).unwrap(), list(&[("a", "1")]));
    decoder.decode(&bytes("4001 6201 32")).unwrap();
    assert_eq!(*decoder.decode(&bytes("be")).unwrap(), list(&[("b", "2")]));
    assert_eq!(decoder.decode(&bytes("20")).map(|fields| fields.len()), Ok(0), "an update empties the table");
    assert_eq!(decoder.decode(&bytes("be")), Err(DecodeError::Broken));
}

#[test]
fn malformed_blocks_are_errors() {
    for (block, why) in [
        ("80", "index 0"),
        ("be", "an index that nothing has"),
        ("ff ff ff ff ff 7f", "an index past all"),
        ("41", "a value that is missing"),
        ("41 05 61", "a string cut short"),
        ("41 81 ff", "padding of eight ones"),
        ("41 82 ff ff ff", "the end-of-string symbol"),
        ("3f e2 1f", "a table larger than allowed"),
        ("82 20", "an update behind a field"),
        ("20 20 20 82", "three updates"),
        ("40", "no name"),
    ] {
        assert_eq!(decoder().decode(&bytes(block)), Err(DecodeError::Broken), "{why}");
    }
}

#[test]
fn lowered_table_limit_must_be_acknowledged_first() {
    let mut decoder = decoder();
    decoder.allow(100);
    assert_eq!(decoder.decode(&bytes("82")), Err(DecodeError::Broken));
    let mut decoder = self::decoder();
    decoder.allow(100);
    assert!(decoder.decode(&bytes("3f 45 82")).is_ok());
    assert!(decoder.decode(&bytes("82")).is_ok());
}

#[test]
fn oversized_list_leaves_the_table_consistent() {
    let mut decoder = Decoder::new(4096, 100);
    let mut block = bytes("4001 6101 31");
    block.extend([0xbe; 50]);
    let fitted = [("a", "1"), ("a", "1")];
    let too_large = DecodeError::TooLarge { size: 51 * 34, fields: Arc::new(list(&fitted)) };
    assert_eq!(decoder.decode(&block), Err(too_large));
    assert_eq!(*decoder.decode(&bytes("be")).unwrap(), list(&[("a", "1")]));
}

#[test]
fn sensitive_field_is_never_indexed() {
    let mut block = Vec::new();
    Encoder::new().field(b"authorization", b"secret", Indexing::Never, &mut block);
    assert_eq!(block[0] & 0xf0, 0x10);
    let mut decoder = decoder();
    decoder.decode(&block).unwrap();
    assert_eq!(decoder.decode(&bytes("be")), Err(DecodeError::Broken), "the table is empty");
}

#[test]
fn random_bytes_never_panic() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut decoder = decoder();
    for _ in 0..20_000 {
        let block: Vec<u8> = (0..state % 40)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 24) as u8
            })
            .collect();
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let _ = decoder.decode(&block);
    }
}
