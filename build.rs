//! Tells the crate whether the kit of its tests is there: it is in the repository, and not in what
//! is published. Unit tests that need servers are built with it only.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(kit)");
    if Path::new("tests/kit").is_dir() {
        println!("cargo::rustc-cfg=kit");
    }
}
