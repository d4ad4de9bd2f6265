//! SHA-256 as the log writes it.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// 64 lower-case hex digits.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
