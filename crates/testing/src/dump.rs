//! Files of captured packets.

/// A pcap or pcapng file: its calls are read to the end, whatever is damaged.
pub fn dump(input: &[u8]) {
    let calls = polyrpc_cli::captured_calls(input);
    // A call takes a few bytes at least.
    assert!(calls <= input.len(), "{calls} calls in {} bytes", input.len());
}
