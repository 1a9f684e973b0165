use polyrpc_core::testing::hex;

use crate::{Algorithm, Cipher, derive_key};

#[test]
fn ciphers_equal_those_of_kcp_go() {
    let mut tested = Vec::new();
    for line in include_str!("../../vectors/kcp/ciphers.txt").lines() {
        let words: Vec<_> = line.split(' ').collect();
        let [name, key, plain, encrypted] = words[..] else { panic!("{line}") };
        let key = if key == "-" { Default::default() } else { hex(key) };
        let algorithm = name.parse().unwrap();
        let cipher = Cipher::new(algorithm, &key).unwrap();
        let mut bytes = hex(plain).to_vec();
        cipher.encrypt(&mut bytes);
        assert!(bytes == hex(encrypted), "{algorithm} with {} bytes of key", key.len());
        cipher.decrypt(&mut bytes);
        assert!(bytes == hex(plain), "{algorithm} back");
        tested.push(algorithm);
    }
    assert!(Algorithm::NAMED.iter().all(|(_, algorithm)| tested.contains(algorithm)));
}

#[test]
fn key_derivation_equals_that_of_the_rpcx_examples() {
    let key = derive_key(b"rpcx-key", b"rpcx-salt", 4096);
    assert!(include_str!("../../vectors/kcp/ciphers.txt").lines().any(|line| {
        line.split(' ').nth(1).filter(|key| key.len() == 64).is_some_and(|text| *hex(text) == key)
    }));
}

#[test]
fn key_of_the_wrong_length_is_rejected() {
    for (algorithm, length) in [
        (Algorithm::Aes, 20),
        (Algorithm::Sm4, 32),
        (Algorithm::Tea, 17),
        (Algorithm::Xtea, 0),
        (Algorithm::Blowfish, 57),
        (Algorithm::Cast5, 5),
        (Algorithm::TripleDes, 16),
        (Algorithm::Twofish, 20),
    ] {
        let error = Cipher::new(algorithm, &vec![1; length]).unwrap_err();
        assert_eq!(error.to_string(), format!("invalid key length for {algorithm}: {length} bytes"));
    }
    let unknown = "rot13".parse::<Algorithm>().unwrap_err();
    assert!(unknown.to_string().starts_with("unknown cipher: expected one of none xor aes"));
}

#[test]
fn debug_output_hides_the_key() {
    let cipher = Cipher::new(Algorithm::Aes, &[0xab; 32]).unwrap();
    assert_eq!(format!("{cipher:?}"), "Cipher { algorithm: Aes, .. }");
}
