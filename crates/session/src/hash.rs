//! SHA-256 as the log writes it.

use sha2::{Digest, Sha256};

/// The SHA-256 of some bytes.
pub(crate) type Hash = [u8; 32];

pub(crate) fn hash_of(bytes: &[u8]) -> Hash {
    Sha256::digest(bytes).into()
}

/// `sha256:` and 64 lower-case hex digits: the form of `prev` and of artifact ids.
pub(crate) fn named(hash: &Hash) -> String {
    let mut text = String::with_capacity(71);
    text.push_str("sha256:");
    push_hex(&mut text, hash);
    text
}

/// 64 lower-case hex digits.
pub(crate) fn hex(hash: &Hash) -> String {
    let mut text = String::with_capacity(64);
    push_hex(&mut text, hash);
    text
}

fn push_hex(text: &mut String, hash: &Hash) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut digits = [0; 64];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(hash) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    text.push_str(std::str::from_utf8(&digits).unwrap_or_default());
}

/// Reads 64 lower-case hex digits.
pub(crate) fn from_hex(text: &[u8]) -> Option<Hash> {
    let text: &[u8; 64] = text.try_into().ok()?;
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(text.chunks_exact(2)) {
        *byte = (digit(pair[0])? << 4) | digit(pair[1])?;
    }
    Some(hash)
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}
