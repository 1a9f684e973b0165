//! WebSocket seeds: the examples of RFC 6455 §5.7, captures of rpcx, and edge cases.

use polyrpc_core::testing::hex;

use super::Seeds;

/// Frames after the bytes that select how they are fed; the last bit of the second marks them as a client's.
pub(super) fn frames() -> Seeds {
    EXAMPLES
        .iter()
        .map(|(name, manner, digits)| ((*name).to_owned(), [&[7, *manner], &hex(digits)[..]].concat()))
        .collect()
}

const EXAMPLES: [(&str, u8, &str); 9] = [
    ("text", 0, "8105 48656c6c6f"),
    ("masked_text", 1, "8185 37fa213d 7f9f4d5158"),
    ("fragments", 0, "0103 48656c 8902 6869 0000 8002 6c6f"),
    ("ping_and_pong", 0, "8905 48656c6c6f 8a00"),
    ("two_byte_length", 2, "827e 0080 00010203"),
    ("eight_byte_length", 2, "827f 0000000000010000 00010203"),
    ("close", 1, "8882 01020304 02ea"),
    ("cut_character", 0, "0104 cebae1bd 8002 b9cf"),
    (
        "rpcx",
        3,
        "81b5 cdcc1b7a c5cc1b6acdcc1b7acdcc1b7acdcc1b5fcdcc1b7f8cbe720ea5cc1b7ace816e16cdcc1b7acdcc1b77b6ee5a58f7fb37588f\
         ee2142b088828ad5d12a893d",
    ),
];
