//! Seeds of header compression: the examples of RFC 7541, appendix C, and edge cases.

use polyrpc_core::testing::hex;

use super::Seeds;

/// Each is a conversation in the format of the target.
pub(super) fn conversations() -> Seeds {
    let (block, fields, size) = (0, 2, 3);
    let examples = EXAMPLES.iter().map(|(name, blocks)| {
        let steps: Vec<_> = blocks.iter().map(|digits| step(block, &hex(digits))).collect();
        ((*name).to_owned(), steps.concat())
    });
    let secret = [&[2, 13, 6][..], b"authorizationsecret"].concat();
    let usual = [&[4, 0, 2][..], b"/a", &[4, 2, 2], b"me", &[0, 4, 5], b"namevalue"].concat();
    let written = [
        ("written", [step(fields, &usual), step(fields, &usual), step(fields, &secret)].concat()),
        (
            "written_while_tables_change",
            [
                step(fields, &usual),
                step(size, &[0, 0, 0, 16]),
                step(fields, &usual),
                step(size, &[50, 0]),
                step(fields, &[&usual[..], &secret].concat()),
                step(size, &[0xff, 0xff]),
                step(fields, &usual),
            ]
            .concat(),
        ),
    ];
    examples.chain(written.map(|(name, input)| (name.to_owned(), input))).collect()
}

fn step(kind: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).expect("a short step");
    [&[kind, length], bytes].concat()
}

const EXAMPLES: [(&str, &[&str]); 14] = [
    ("c_2_1", &["400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572"]),
    ("c_2_2", &["040c 2f73 616d 706c 652f 7061 7468"]),
    ("c_2_3", &["1008 7061 7373 776f 7264 0673 6563 7265 74"]),
    ("c_2_4", &["82"]),
    (
        "c_3",
        &[
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
        ],
    ),
    (
        "c_4",
        &[
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
            "8286 84be 5886 a8eb 1064 9cbf",
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
        ],
    ),
    (
        // The examples use a table of 256 bytes, announced by a size update.
        "c_5",
        &[
            "3fe1 01",
            "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 \
             3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "4803 3330 37c1 c0bf",
            "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 \
             7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 \
             6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
        ],
    ),
    (
        "c_6",
        &[
            "3fe1 01",
            "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad \
             1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
            "4883 640e ffc1 c0bf",
            "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 \
             e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
        ],
    ),
    ("broken", &["80", "be", "ff ff ff ff ff 7f", "41", "41 05 61", "82 20"]),
    ("huffman_padding", &["41 81 ff", "41 82 ff ff", "41 84 ff ff ff ff", "41 81 fe"]),
    ("updates", &["20 3f e1 1f", "3f e2 1f", "20 20 82", "20 20 20 82"]),
    ("evicted", &["4001 6101 31", "be", "4001 6201 32", "be bf", "20", "be"]),
    // To us the fields of a malformed message, to `h2` a connection error.
    ("upper_case", &["4001 4101 31"]),
    ("no_message", &["4001 6101 31 82", "82 82", "000a 636f 6e6e 6563 7469 6f6e 00", "be"]),
];
