//! The linker of a release keeps functions that compile to the same instructions once: more than a
//! megabyte of instances of generic code. The program stays position-independent, which costs about a
//! millisecond at every start (docs/PERFORMANCE.md): it reads hostile bytes.
//!
//! The linkers that Rust uses on this target know the flag; one that was chosen by hand is left alone.

use std::env::var;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| var(name).is_ok_and(|found| found == value);
    let flags = var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let is_chosen = var("RUSTC_LINKER").is_ok()
        || ["fuse-ld=bfd", "linker="]
            .iter()
            .any(|flag| flags.contains(flag));
    if is("PROFILE", "release") && is("TARGET", "x86_64-unknown-linux-gnu") && !is_chosen {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
    }
}
