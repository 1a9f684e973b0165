use std::collections::VecDeque;

use super::crypt::Cipher;

/// Outermost layer of a datagram, if there is a cipher (`sess.go: output`).
///
/// ```text
///  0                16       20
///  | random bytes   | crc32  | payload …
/// ```
///
/// All of it is encrypted; the checksum covers the payload, little-endian.
#[derive(Debug, Clone)]
pub(super) struct Envelope {
    cipher: Option<Cipher>,
}

impl Envelope {
    pub(super) fn new(cipher: Option<Cipher>) -> Self {
        Self { cipher }
    }

    /// Returns the number of bytes before the payload.
    pub(super) fn overhead(&self) -> usize {
        if self.cipher.is_some() { NONCE + 4 } else { 0 }
    }

    /// Encrypts the payload in place, after the space reserved for the header.
    pub(super) fn seal(&self, datagram: &mut [u8], nonces: &mut Nonces) {
        let Some(cipher) = &self.cipher else { return };
        let (nonce, rest) = datagram.split_at_mut(NONCE);
        let (checksum, payload) = rest.split_at_mut(4);
        nonce.copy_from_slice(&nonces.next());
        checksum.copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
        cipher.encrypt(datagram);
    }

    /// Decrypts the payload. `None`: it was encrypted with another key, or damaged.
    pub(super) fn open<'a>(&self, datagram: &'a mut [u8]) -> Option<&'a [u8]> {
        let Some(cipher) = &self.cipher else { return Some(datagram) };
        if datagram.len() < self.overhead() {
            return None;
        }
        cipher.decrypt(datagram);
        let (checksum, payload) = datagram.get(NONCE..)?.split_first_chunk()?;
        (crc32fast::hash(payload) == u32::from_le_bytes(*checksum)).then_some(payload)
    }
}

const NONCE: usize = 16;

/// Generator of random bytes from a random seed.
#[derive(Debug)]
pub(super) struct Nonces {
    cipher: Box<aes::Aes128>,
    last: [u8; NONCE],
}

impl Nonces {
    pub(super) fn new(seed: [u8; 32]) -> Self {
        use aes::cipher::KeyInit;
        let (key, last) = seed.split_at(NONCE);
        let cipher = aes::Aes128::new_from_slice(key).expect("a key of 16 bytes");
        Self { cipher: Box::new(cipher), last: std::array::from_fn(|at| last[at]) }
    }

    pub(super) fn next(&mut self) -> [u8; NONCE] {
        use aes::cipher::BlockCipherEncrypt;
        self.cipher.encrypt_block((&mut self.last).into());
        self.last
    }
}

/// Outgoing datagrams, stored contiguously in one buffer.
#[derive(Debug, Default)]
pub(super) struct OutgoingDatagrams {
    bytes: Vec<u8>,
    begin: usize,
    lengths: VecDeque<usize>,
}

impl OutgoingDatagrams {
    pub(super) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Returns the offset of the next datagram.
    pub(super) fn end(&self) -> usize {
        self.bytes.len()
    }

    /// Ends a datagram that consists of all bytes from `begin` on.
    pub(super) fn finish(&mut self, begin: usize) {
        self.lengths.push_back(self.bytes.len() - begin);
    }

    pub(super) fn first(&self) -> Option<&[u8]> {
        let length = *self.lengths.front()?;
        self.bytes.get(self.begin..self.begin + length)
    }

    pub(super) fn advance(&mut self) {
        self.begin += self.lengths.pop_front().unwrap_or(0);
        if self.lengths.is_empty() {
            self.bytes.clear();
            self.begin = 0;
        } else if self.begin >= MAX_SENT_PREFIX_BYTES && self.begin >= self.len() {
            // A socket that accepts some of them at a time may never accept all. Each byte is moved about once.
            self.bytes.drain(..self.begin);
            self.begin = 0;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.begin
    }

    pub(super) fn shrink(&mut self) {
        if self.lengths.is_empty() {
            *self = Self::default();
        }
    }
}

/// Bytes of sent datagrams that are kept in front of the others.
const MAX_SENT_PREFIX_BYTES: usize = 64 << 10;
