use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use aes::cipher::{BlockCipherEncrypt, KeyInit, KeyIvInit, StreamCipher};
use blowfish::Blowfish;
use salsa20::Salsa20;
use sha1::Sha1;

use super::error::ConfigError;
use super::tea::{tea, xtea};

/// A cipher of `kcp-go` with its key (`crypt.go`).
///
/// ```
/// use polyrpc_kcp::{Algorithm, Cipher, derive_key};
///
/// let key = derive_key(b"rpcx-key", b"rpcx-salt", 4096);
/// let cipher = Cipher::new(Algorithm::Aes, &key)?;
/// # Ok::<(), polyrpc_kcp::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct Cipher {
    algorithm: Algorithm,
    keyed: Arc<KeyedCipher>,
}

/// Ciphers of `kcp-go`. They provide secrecy without authentication; tampering is detected by a plain checksum only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Algorithm {
    /// No encryption, but a checksum. Accepts any key.
    None,
    /// Exclusive or with a pad derived from the key: obfuscation, no secrecy. Accepts any key.
    Xor,
    /// AES, with a key of 16, 24 or 32 bytes.
    Aes,
    /// Salsa20. The key is truncated or zero-padded to 32 bytes.
    Salsa20,
    /// SM4, with a key of 16 bytes.
    Sm4,
    /// TEA, with a key of 16 bytes.
    Tea,
    /// XTEA, with a key of 16 bytes.
    Xtea,
    /// Blowfish, with a key of 4 to 56 bytes.
    Blowfish,
    /// CAST-128, with a key of 16 bytes.
    Cast5,
    /// Triple DES, with a key of 24 bytes.
    TripleDes,
    /// Twofish, with a key of 16, 24 or 32 bytes.
    Twofish,
}

/// Derives a key of 32 bytes from a password by PBKDF2 with SHA-1, like the examples of rpcx and `kcp-go`.
pub fn derive_key(password: &[u8], salt: &[u8], rounds: u32) -> [u8; 32] {
    let mut key = [0; 32];
    pbkdf2::pbkdf2_hmac::<Sha1>(password, salt, rounds, &mut key);
    key
}

enum KeyedCipher {
    None,
    Xor(Box<[u8]>),
    Salsa20([u8; 32]),
    Aes128(aes::Aes128),
    Aes192(aes::Aes192),
    Aes256(aes::Aes256),
    Sm4(sm4::Sm4),
    Tea([u32; 4]),
    Xtea([u32; 4]),
    Blowfish(Box<Blowfish>),
    Cast5(cast5::Cast5),
    TripleDes(Box<des::TdesEde3>),
    Twofish(Box<twofish::Twofish>),
}

impl Cipher {
    /// Creates a cipher with this key.
    ///
    /// # Errors
    ///
    /// If the key is too long or too short.
    pub fn new(algorithm: Algorithm, key: &[u8]) -> Result<Self, ConfigError> {
        let keyed = KeyedCipher::new(algorithm, key).ok_or_else(|| wrong_key(algorithm, key.len()))?;
        Ok(Self { algorithm, keyed: Arc::new(keyed) })
    }

    /// Encrypts a datagram, which starts with 16 random bytes.
    pub(super) fn encrypt(&self, datagram: &mut [u8]) {
        self.apply(Direction::Encrypt, datagram);
    }

    /// Decrypts a datagram: the inverse of [`encrypt`](Self::encrypt).
    pub(super) fn decrypt(&self, datagram: &mut [u8]) {
        self.apply(Direction::Decrypt, datagram);
    }

    fn apply(&self, direction: Direction, datagram: &mut [u8]) {
        match &*self.keyed {
            KeyedCipher::None => {}
            KeyedCipher::Xor(pad) => mask(datagram, pad),
            KeyedCipher::Salsa20(key) => salsa20(key, datagram),
            KeyedCipher::Aes128(cipher) => {
                feed_back::<16>(direction, datagram, |b| cipher.encrypt_block(b.into()))
            }
            KeyedCipher::Aes192(cipher) => {
                feed_back::<16>(direction, datagram, |b| cipher.encrypt_block(b.into()))
            }
            KeyedCipher::Aes256(cipher) => {
                feed_back::<16>(direction, datagram, |b| cipher.encrypt_block(b.into()))
            }
            KeyedCipher::Sm4(cipher) => {
                feed_back::<16>(direction, datagram, |b| cipher.encrypt_block(b.into()))
            }
            KeyedCipher::Twofish(cipher) => {
                feed_back::<16>(direction, datagram, |b| cipher.encrypt_block(b.into()))
            }
            KeyedCipher::Tea(key) => feed_back::<8>(direction, datagram, |b| tea(key, b)),
            KeyedCipher::Xtea(key) => feed_back::<8>(direction, datagram, |b| xtea(key, b)),
            KeyedCipher::Blowfish(cipher) => {
                feed_back::<8>(direction, datagram, |b| cipher.encrypt_block(b.into()))
            }
            KeyedCipher::Cast5(cipher) => {
                feed_back::<8>(direction, datagram, |b| cipher.encrypt_block(b.into()))
            }
            KeyedCipher::TripleDes(cipher) => {
                feed_back::<8>(direction, datagram, |b| cipher.encrypt_block(b.into()))
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Direction {
    Encrypt,
    Decrypt,
}

/// Cipher feedback (CFB) with the constant initialization vector of `kcp-go`: the first block is random.
fn feed_back<const N: usize>(direction: Direction, datagram: &mut [u8], cipher: impl Fn(&mut [u8; N])) {
    let mut feedback: [u8; N] = std::array::from_fn(|at| INITIAL_VECTOR[at]);
    let (blocks, rest) = datagram.as_chunks_mut::<N>();
    for block in blocks {
        cipher(&mut feedback);
        let before = *block;
        mask(block, &feedback);
        feedback = match direction {
            Direction::Encrypt => *block,
            Direction::Decrypt => before,
        };
    }
    cipher(&mut feedback);
    mask(rest, &feedback);
}

/// The first 8 bytes are the nonce and stay unencrypted.
fn salsa20(key: &[u8; 32], datagram: &mut [u8]) {
    if let Some((nonce, rest)) = datagram.split_first_chunk_mut::<8>() {
        Salsa20::new(key.into(), (&*nonce).into()).apply_keystream(rest);
    }
}

fn mask(bytes: &mut [u8], with: &[u8]) {
    bytes.iter_mut().zip(with).for_each(|(byte, mask)| *byte ^= mask);
}

/// `crypt.go: initialVector`
const INITIAL_VECTOR: [u8; 16] = [167, 115, 79, 156, 18, 172, 27, 1, 164, 21, 242, 193, 252, 120, 230, 107];

impl KeyedCipher {
    fn new(algorithm: Algorithm, key: &[u8]) -> Option<Self> {
        Some(match (algorithm, key.len()) {
            (Algorithm::None, _) => Self::None,
            (Algorithm::Xor, _) => Self::Xor(pad(key)),
            (Algorithm::Salsa20, _) => {
                Self::Salsa20(std::array::from_fn(|at| key.get(at).copied().unwrap_or(0)))
            }
            (Algorithm::Aes, 16) => Self::Aes128(KeyInit::new_from_slice(key).ok()?),
            (Algorithm::Aes, 24) => Self::Aes192(KeyInit::new_from_slice(key).ok()?),
            (Algorithm::Aes, _) => Self::Aes256(KeyInit::new_from_slice(key).ok()?),
            (Algorithm::Sm4, _) => Self::Sm4(KeyInit::new_from_slice(key).ok()?),
            (Algorithm::Tea, 16) => Self::Tea(key_words(key)?),
            (Algorithm::Xtea, 16) => Self::Xtea(key_words(key)?),
            (Algorithm::Tea | Algorithm::Xtea, _) => return None,
            (Algorithm::Blowfish, _) => Self::Blowfish(Box::new(KeyInit::new_from_slice(key).ok()?)),
            (Algorithm::Cast5, 16) => Self::Cast5(KeyInit::new_from_slice(key).ok()?),
            (Algorithm::Cast5, _) => return None,
            (Algorithm::TripleDes, _) => Self::TripleDes(Box::new(KeyInit::new_from_slice(key).ok()?)),
            (Algorithm::Twofish, 16 | 24 | 32) => Self::Twofish(Box::new(KeyInit::new_from_slice(key).ok()?)),
            (Algorithm::Twofish, _) => return None,
        })
    }
}

/// Returns the pad that [`Algorithm::Xor`] derives from a key (`crypt.go: NewSimpleXORBlockCrypt`).
fn pad(key: &[u8]) -> Box<[u8]> {
    let mut pad = vec![0; super::MAX_DATAGRAM];
    pbkdf2::pbkdf2_hmac::<Sha1>(key, b"sH3CIVoF#rWLtJo6", 32, &mut pad);
    pad.into()
}

fn key_words(key: &[u8]) -> Option<[u32; 4]> {
    let mut words = key.as_chunks::<4>().0.iter().map(|word| u32::from_be_bytes(*word));
    Some([words.next()?, words.next()?, words.next()?, words.next()?])
}

impl Algorithm {
    /// All ciphers, by their names in `kcptun`.
    pub const NAMED: [(&str, Self); 11] = [
        ("none", Self::None),
        ("xor", Self::Xor),
        ("aes", Self::Aes),
        ("salsa20", Self::Salsa20),
        ("sm4", Self::Sm4),
        ("tea", Self::Tea),
        ("xtea", Self::Xtea),
        ("blowfish", Self::Blowfish),
        ("cast5", Self::Cast5),
        ("3des", Self::TripleDes),
        ("twofish", Self::Twofish),
    ];
}

impl FromStr for Algorithm {
    type Err = ConfigError;

    fn from_str(name: &str) -> Result<Self, ConfigError> {
        let named = Self::NAMED.iter().find(|(its_name, _)| *its_name == name);
        named.map(|&(_, algorithm)| algorithm).ok_or_else(unknown_algorithm)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Self::NAMED.iter().find(|(_, algorithm)| algorithm == self);
        f.write_str(named.map_or("", |(name, _)| name))
    }
}

#[cold]
fn unknown_algorithm() -> ConfigError {
    let names: Vec<_> = Algorithm::NAMED.iter().map(|(name, _)| *name).collect();
    ConfigError::new(format!("unknown cipher: expected one of {}", names.join(" ")))
}

#[cold]
fn wrong_key(algorithm: Algorithm, length: usize) -> ConfigError {
    ConfigError::new(format!("invalid key length for {algorithm}: {length} bytes"))
}

// The key is not printed.
impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cipher").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}
