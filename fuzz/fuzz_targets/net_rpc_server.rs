#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| polyrpc_testing::net_rpc_server(input));
