//! What the linker is told about a release. Functions that compile to the same instructions are kept
//! once: more than a megabyte of instances of generic code. And the program is linked for a fixed
//! address, as Go programs are: the loader would otherwise patch 60,000 pointers at every start, which
//! is a millisecond and two hundred pages, for a program that has no unsafe code outside its sandbox
//! crate. Stack, heap and libraries stay where the kernel puts them.
//!
//! The linkers that Rust uses on this target know both. `RUSTFLAGS=-Clink-arg=-pie` gives the other kind
//! of program; a linker that was chosen by hand is left alone.

use std::env::var;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| var(name).is_ok_and(|found| found == value);
    let flags = var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let is_chosen = var("RUSTC_LINKER").is_ok()
        || ["fuse-ld=bfd", "linker=", "-pie"]
            .iter()
            .any(|flag| flags.contains(flag));
    if is("PROFILE", "release") && is("TARGET", "x86_64-unknown-linux-gnu") && !is_chosen {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
