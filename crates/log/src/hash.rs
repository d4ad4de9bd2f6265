//! SHA-256 as the log writes it.

use sha2::{Digest, Sha256};

/// The SHA-256 of some bytes.
pub type Hash = [u8; 32];

pub(crate) fn hash_of(bytes: &[u8]) -> Hash {
    Sha256::digest(bytes).into()
}

/// `sha256:` and 64 lower-case hex digits: the form of `prev` and of artifact ids.
pub fn named(hash: &Hash) -> String {
    let mut text = String::with_capacity(71);
    text.push_str("sha256:");
    agent_text::hex::push_hex(&mut text, hash);
    text
}
