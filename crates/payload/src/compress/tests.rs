use super::*;

const ALL: &[Compression] = &[
    Compression::None,
    Compression::Gzip,
    Compression::Zlib,
    Compression::Snappy,
    Compression::SnappyFrames,
    Compression::Lz4,
    #[cfg(feature = "zstd")]
    Compression::Zstd,
];

fn samples() -> Vec<Vec<u8>> {
    vec![
        vec![],
        b"a".to_vec(),
        b"hello world".to_vec(),
        b"polyrpc ".repeat(1000),
        noise(100_000),
        vec![0; 1 << 20],
    ]
}

/// Pseudo-random bytes.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

#[test]
fn compression_round_trips() {
    for &compression in ALL {
        for sample in samples() {
            let compressed = compress(compression, &sample).unwrap();
            let back = decompress(compression, &compressed, sample.len());
            assert_eq!(back.as_deref(), Ok(&*sample), "{compression:?} {}", sample.len());
        }
    }
}

#[test]
fn output_one_byte_over_the_limit_is_too_large() {
    for &compression in ALL {
        for sample in samples().into_iter().filter(|sample| !sample.is_empty()) {
            let limit = sample.len() - 1;
            let compressed = compress(compression, &sample).unwrap();
            let result = decompress(compression, &compressed, limit);
            assert_eq!(result, Err(Error::TooLarge { limit }), "{compression:?}");
        }
    }
}

#[test]
fn truncated_data_and_trailing_bytes_are_malformed() {
    // A stream of frames may end after any of them.
    let whole =
        |compression: &&Compression| !matches!(compression, Compression::None | Compression::SnappyFrames);
    for &compression in ALL.iter().filter(whole) {
        for sample in samples().into_iter().filter(|sample| sample.len() < 10_000) {
            let mut compressed = compress(compression, &sample).unwrap();
            for length in 0..compressed.len() {
                let result = decompress(compression, &compressed[..length], 1 << 20);
                assert!(matches!(result, Err(Error::Broken(_))), "{compression:?} {length} {result:?}");
            }
            compressed.push(0);
            let result = decompress(compression, &compressed, 1 << 20);
            assert!(matches!(result, Err(Error::Broken(_))), "{compression:?} trailing {result:?}");
        }
    }
}

#[test]
fn damaged_data_never_panics_and_leaves_the_state_usable() {
    let noise = noise(1000);
    for &compression in ALL {
        let sample = b"polyrpc ".repeat(100);
        let compressed = compress(compression, &sample).unwrap();
        for at in 0..compressed.len() {
            for flip in [1, 0x80, 0xff] {
                let mut damaged = compressed.clone();
                damaged[at] ^= flip;
                let _ = decompress(compression, &damaged, 1 << 16);
            }
        }
        for at in 0..noise.len() {
            let _ = decompress(compression, &noise[at..], 1 << 16);
        }
        assert_eq!(decompress(compression, &compressed, 1 << 16), Ok(sample));
    }
}

#[test]
fn gzip_and_zlib_headers_are_not_interchangeable() {
    let gzip = compress(Compression::Gzip, b"x").unwrap();
    let zlib = compress(Compression::Zlib, b"x").unwrap();
    assert!(matches!(decompress(Compression::Gzip, &zlib, 10), Err(Error::Broken(_))));
    assert!(matches!(decompress(Compression::Zlib, &gzip, 10), Err(Error::Broken(_))));
}

#[test]
fn concatenated_gzip_members_are_read_as_one() {
    let members = [compress(Compression::Gzip, b"ab").unwrap(), compress(Compression::Gzip, b"cd").unwrap()];
    assert_eq!(decompress(Compression::Gzip, &members.concat(), 10), Ok(b"abcd".to_vec()));
}

#[test]
fn gzip_header_with_every_optional_part_is_read() {
    let plain = compress(Compression::Gzip, b"ab").unwrap();
    let mut full = vec![0x1f, 0x8b, 8, 0x1e, 0, 0, 0, 0, 0, 3, 2, 0, 9, 9];
    full.extend_from_slice(b"name\0comment\0");
    let mut crc = flate2::Crc::new();
    crc.update(&full);
    full.extend_from_slice(&(crc.sum() as u16).to_le_bytes());
    full.extend_from_slice(&plain[10..]);
    assert_eq!(decompress(Compression::Gzip, &full, 10), Ok(b"ab".to_vec()));
}

#[test]
fn empty_gzip_member_equals_that_of_brpc() {
    assert_eq!(compress(Compression::Gzip, b"").unwrap().len(), 20);
}

#[test]
fn bomb_of_gigabytes_stops_at_the_limit() {
    let limit = 1 << 20;
    let mebibyte = vec![0; 1 << 20];
    let gzip = compress(Compression::Gzip, &mebibyte).unwrap().repeat(1024);
    assert_eq!(decompress(Compression::Gzip, &gzip, limit), Err(Error::TooLarge { limit }));

    let zlib = compress(Compression::Zlib, &mebibyte.repeat(16)).unwrap();
    assert_eq!(decompress(Compression::Zlib, &zlib, limit), Err(Error::TooLarge { limit }));

    let gibibyte = [0x80, 0x80, 0x80, 0x80, 0x04];
    assert_eq!(decompress(Compression::Snappy, &gibibyte, limit), Err(Error::TooLarge { limit }));
    assert_eq!(decompress(Compression::Lz4, &gibibyte, limit), Err(Error::TooLarge { limit }));
}

#[cfg(feature = "zstd")]
#[test]
fn zstd_bomb_stops_at_the_limit_with_and_without_a_length() {
    let limit = 1 << 20;
    // 8192 blocks of 128 KiB of one byte: no length in the header, a window of 128 KiB.
    let mut silent = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x38];
    for last in (0..8192).rev().map(|left| u32::from(left == 0)) {
        let header = (128 << 10) << 3 | 1 << 1 | last;
        silent.extend_from_slice(&header.to_le_bytes()[..3]);
        silent.push(0);
    }
    assert_eq!(decompress(Compression::Zstd, &silent, limit), Err(Error::TooLarge { limit }));
    assert_eq!(decompress(Compression::Zstd, &silent, 1 << 30).map(|out| out.len()), Ok(1 << 30));

    let telling = compress(Compression::Zstd, &vec![0; 16 << 20]).unwrap();
    assert_eq!(decompress(Compression::Zstd, &telling, limit), Err(Error::TooLarge { limit }));
}

#[test]
fn impossible_announced_length_is_rejected_before_allocation() {
    let gibibyte = [0x80, 0x80, 0x80, 0x80, 0x04, 0];
    for compression in [Compression::Snappy, Compression::Lz4] {
        assert!(matches!(decompress(compression, &gibibyte, usize::MAX), Err(Error::Broken(_))));
    }
}

#[test]
fn lz4_block_must_have_the_announced_length() {
    let mut block = compress(Compression::Lz4, b"hello world").unwrap();
    for length in [10, 12] {
        block[0] = length;
        assert!(matches!(decompress(Compression::Lz4, &block, 100), Err(Error::Broken(_))));
    }
}

#[test]
fn unknown_compression_error_names_its_number() {
    let error = decompress(Compression::Other(7), b"", 0).unwrap_err();
    assert_eq!(error, Error::Unknown(Compression::Other(7)));
    assert_eq!(error.to_string(), "unknown compression 7");
}

/// Returns a frame of zeros, of unknown length, with this window.
#[cfg(feature = "zstd")]
fn windowed(log: u8) -> Vec<u8> {
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, (log - 10) << 3];
    frame.extend_from_slice(&((1000 << 3 | 1 << 1 | 1_u32).to_le_bytes()[..3]));
    frame.push(0);
    frame
}

#[cfg(feature = "zstd")]
#[test]
fn zstd_window_may_be_as_large_as_the_limit_and_8_mib_always() {
    for (log, limit) in [(10, 1000), (21, 1000), (23, 1000), (24, 16 << 20), (26, 64 << 20), (27, 1 << 30)] {
        assert_eq!(decompress(Compression::Zstd, &windowed(log), limit), Ok(vec![0; 1000]), "{log}");
    }
    for (log, limit) in [(24, 1000), (24, (16 << 20) - 1), (26, 40 << 20), (28, usize::MAX), (31, 64 << 20)] {
        let result = decompress(Compression::Zstd, &windowed(log), limit);
        assert_eq!(
            result,
            Err(Error::Broken("the window of a zstd frame is larger than the limit")),
            "{log}"
        );
    }
}

#[cfg(feature = "zstd")]
#[test]
fn zstd_frame_with_a_large_window_after_others_is_read() {
    let frames = [compress(Compression::Zstd, b"ab").unwrap(), windowed(23), windowed(10)].concat();
    assert_eq!(decompress(Compression::Zstd, &frames, 1 << 20).map(|out| out.len()), Ok(2002));
}

#[test]
fn output_capacity_is_at_most_twice_its_length() {
    for &compression in ALL {
        for length in [5000, 70_000, (1 << 20) + 1] {
            let compressed = compress(compression, &vec![7; length]).unwrap();
            let out = decompress(compression, &compressed, 64 << 20).unwrap();
            assert!(out.capacity() <= 2 * length, "{compression:?} {length}: {}", out.capacity());
        }
        // Input that is much longer than its output, where that is possible.
        if compression == Compression::Gzip {
            let empty = compress(compression, b"").unwrap().repeat(5000);
            assert!(decompress(compression, &empty, 64 << 20).unwrap().capacity() <= WORTH_FITTING);
        }
    }
}

#[test]
fn announced_length_is_read_without_decompressing() {
    let sample = vec![1; 100_000];
    let hint_of = |compression| hint(compression, &compress(compression, &sample).unwrap());
    assert_eq!(hint_of(Compression::None), Some(100_000));
    assert_eq!(hint_of(Compression::Snappy), Some(100_000));
    assert_eq!(hint_of(Compression::Lz4), Some(100_000));
    #[cfg(feature = "zstd")]
    assert_eq!(hint_of(Compression::Zstd), Some(100_000));
    for silent in [Compression::Gzip, Compression::Zlib, Compression::SnappyFrames, Compression::Other(7)] {
        assert_eq!(hint(silent, b"anything"), None);
    }
}

#[test]
fn memory_is_reserved_before_the_output_has_it() {
    let sample = vec![0; 1 << 20];
    for &compression in ALL {
        let compressed = compress(compression, &sample).unwrap();
        for (budget, fits) in [(4 << 20, true), ((1 << 20) + 1, true), (1 << 19, false), (0, false)] {
            let mut left = budget;
            let mut reserve = |wanted: usize| {
                let granted = wanted.min(left);
                left -= granted;
                granted
            };
            let made = decompress_reserving(compression, &compressed, usize::MAX, &mut reserve);
            let expected = if fits { Ok(&*sample) } else { Err(&Error::NoMemory) };
            assert_eq!(made.as_deref(), expected, "{compression:?}, {budget}");
            let reserved = budget - left;
            assert!(
                !fits || (sample.len()..=2 * sample.len()).contains(&reserved),
                "{compression:?}, {reserved}"
            );
        }
    }
}
