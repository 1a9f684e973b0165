#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| polyrpc_wire::testing::fuzz::grpc_web_client(input));
