//! Message compression, and its names in `grpc-encoding` and `grpc-accept-encoding`.

use bytes::Bytes;

use polyrpc_core::Compression;
use polyrpc_payload::compress;

/// Compressions supported by this side, as announced to the peer.
pub(crate) const ACCEPTED: &[u8] = if cfg!(feature = "zstd") {
    b"identity,gzip,zstd,snappy,deflate"
} else {
    b"identity,gzip,snappy,deflate"
};

/// Returns the compression with this name; `None` if it is not supported.
///
/// `snappy` is the framed format, as Go's and Java's codecs write it.
pub(crate) fn read(name: &[u8]) -> Option<Compression> {
    Some(match name {
        b"identity" => Compression::None,
        b"gzip" => Compression::Gzip,
        b"deflate" => Compression::Zlib,
        b"snappy" => Compression::SnappyFrames,
        b"zstd" if cfg!(feature = "zstd") => Compression::Zstd,
        _ => return None,
    })
}

/// Returns the name of a compression; `None` if gRPC defines none for it.
pub(crate) fn name(compression: Compression) -> Option<&'static [u8]> {
    Some(match compression {
        Compression::None => b"identity",
        Compression::Gzip => b"gzip",
        Compression::Zlib => b"deflate",
        Compression::Snappy | Compression::SnappyFrames => b"snappy",
        Compression::Zstd => b"zstd",
        Compression::Lz4 | Compression::Other(_) => return None,
    })
}

/// Returns the compression as applied to a message: gRPC's snappy is the framed format.
pub(crate) fn to_message_coding(compression: Compression) -> Compression {
    match compression {
        Compression::Snappy => Compression::SnappyFrames,
        other => other,
    }
}

/// Whether a `grpc-accept-encoding` list contains this compression.
pub(crate) fn accepts(list: &[u8], compression: Compression) -> bool {
    let Some(name) = name(compression) else { return false };
    list.split(|&byte| byte == b',').any(|entry| entry.trim_ascii() == name)
}

/// Returns a message as it is sent, and whether it is compressed; a message that compression does not shorten is sent
/// uncompressed.
pub(crate) fn compress_if_smaller(compression: Compression, message: Bytes) -> (bool, Bytes) {
    if compression == Compression::None {
        return (false, message);
    }
    match compress::compress(compression, &message) {
        Ok(shorter) if shorter.len() < message.len() => (true, shorter.into()),
        _ => (false, message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_advertised_coding_can_be_decoded() {
        for name in ACCEPTED.split(|&byte| byte == b',') {
            assert_eq!(read(name).map(super::name), Some(Some(name)));
        }
        assert_eq!(read(b"br"), None);
    }

    #[test]
    fn coding_list_is_matched_by_whole_names() {
        assert!(accepts(b"identity, gzip", Compression::Gzip));
        assert!(!accepts(b"identity,gzipped", Compression::Gzip));
        assert!(!accepts(b"", Compression::Gzip));
    }
}
