//! KCP options.

use std::str::FromStr;

use clap::Args;
use polyrpc::kcp::{Algorithm, Cipher, Config, Shards};

use crate::failure::Failure;

/// Options that must be equal on both sides of a conversation.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Over KCP (kcp://, rpcx://host:port?transport=kcp)")]
pub(crate) struct Kcp {
    /// Encrypt datagrams: none (with a checksum), xor, aes, salsa20, sm4, tea, xtea, blowfish, cast5, 3des or twofish;
    /// rpcx requires one of them
    #[arg(long, value_name = "NAME")]
    kcp_cipher: Option<Algorithm>,
    /// The key of --kcp-cipher in hexadecimal digits
    #[arg(long, value_name = "HEX", requires = "kcp_cipher")]
    kcp_key: Option<Key>,
    /// Add PARITY parity datagrams to every DATA datagrams: DATA,PARITY [default: 10,3 with a cipher, as in rpcx, else
    /// none]
    #[arg(long, value_name = "DATA,PARITY", value_parser = parse_shards)]
    kcp_shards: Option<Shards>,
}

impl Kcp {
    /// The first option that is given.
    pub(crate) fn given_option(&self) -> Option<&'static str> {
        let Self { kcp_cipher, kcp_key, kcp_shards } = self;
        let options = [
            (kcp_cipher.is_some() || kcp_key.is_some(), "--kcp-cipher"),
            (kcp_shards.is_some(), "--kcp-shards"),
        ];
        options.into_iter().find(|(is_given, _)| *is_given).map(|(_, option)| option)
    }

    /// The KCP configuration, if any option was given.
    pub(crate) fn config(&self) -> Result<Config, Failure> {
        let mut config = match self.kcp_cipher {
            None => Config::default(),
            Some(algorithm) => {
                let key = self.kcp_key.as_ref().map(|key| key.0.as_slice()).unwrap_or_default();
                let cipher = Cipher::new(algorithm, key).map_err(|error| {
                    Failure::new(format!("--kcp-key: {error}")).with_hint(key_lengths(algorithm))
                })?;
                Config::rpcx(cipher)
            }
        };
        config.shards = self.kcp_shards.or(config.shards);
        Ok(config)
    }
}

/// Lengths of a cipher's key in words.
fn key_lengths(algorithm: Algorithm) -> String {
    let lengths = match algorithm {
        Algorithm::Aes | Algorithm::Twofish => "16, 24 or 32",
        Algorithm::TripleDes => "24",
        Algorithm::Blowfish => "4 to 56",
        _ => "16",
    };
    format!("{algorithm} needs a --kcp-key of {lengths} bytes, two digits each")
}

#[derive(Debug, Clone)]
struct Key(Vec<u8>);

impl FromStr for Key {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digit = |byte: &u8| char::from(*byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let digits: Option<Vec<u8>> = text.as_bytes().iter().map(digit).collect();
        let digits = digits
            .filter(|digits| digits.len() % 2 == 0)
            .ok_or("expected an even number of digits 0-9 and a-f")?;
        Ok(Self(digits.as_chunks::<2>().0.iter().map(|[high, low]| high << 4 | low).collect()))
    }
}

fn parse_shards(text: &str) -> Result<Shards, String> {
    let parsed = text.split_once(',').and_then(|(data, parity)| {
        Some((data.trim().parse::<u32>().ok()?, parity.trim().parse::<u32>().ok()?))
    });
    let (data, parity) = parsed.ok_or("expected two numbers, for example 10,3")?;
    match (u8::try_from(data), u8::try_from(parity)) {
        (Ok(data), Ok(parity)) if u32::from(data) + u32::from(parity) <= MAX_SHARDS => {
            Ok(Shards { data, parity })
        }
        _ => Err(format!("expected at most {MAX_SHARDS} in total")),
    }
}

/// Datagrams of a group that Reed–Solomon codes over bytes can tell apart.
const MAX_SHARDS: u32 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_shards_are_parsed() {
        assert_eq!("00ffA5".parse::<Key>().unwrap().0, [0, 255, 0xa5]);
        assert!("0".parse::<Key>().is_err() && "0g".parse::<Key>().is_err());
        assert_eq!(parse_shards("10,3"), Ok(Shards { data: 10, parity: 3 }));
        assert!(parse_shards("10").unwrap_err().contains("two numbers"));
        for many in ["10,300", "200,100", "999,999"] {
            assert_eq!(parse_shards(many), Err("expected at most 256 in total".to_owned()));
        }
    }

    #[test]
    fn key_of_a_wrong_length_names_the_option_and_the_right_lengths() {
        let kcp = Kcp { kcp_cipher: Some(Algorithm::Aes), kcp_key: None, kcp_shards: None };
        let failure = kcp.config().unwrap_err().to_string();
        assert!(failure.contains("--kcp-key") && failure.contains("16, 24 or 32 bytes"), "{failure}");
    }
}
