//! Tells the crate whether the kit of its tests is there, and with the feature `capi` makes what a C
//! library needs beyond Rust:
//!
//! ```sh
//! cargo rustc --release --lib --features capi,stores,tls --crate-type cdylib
//! ```
//!
//! builds a shared library that is fit to ship. It has its soname, stays mapped, and shows the
//! functions of its header alone: rustc hides every symbol that is not marked for C. The header lies
//! beside the other output of this script, as `leasehold.h`. The one in `include/` is compared with
//! it by `cargo test --features capi --test languages abi:`, and `make header` writes it anew.

use std::error::Error;
use std::path::Path;

#[cfg(feature = "capi")]
#[path = "build/header.rs"]
mod header;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(kit)");
    // It is in the repository, and not in what is published. Unit tests that need servers are built
    // with it only.
    if Path::new("tests/kit").is_dir() {
        println!("cargo::rustc-cfg=kit");
    }
    #[cfg(feature = "capi")]
    {
        header::write()?;
        link();
    }
    Ok(())
}

#[cfg(feature = "capi")]
fn link() {
    let is = |key: &str, value: &str| std::env::var(key).is_ok_and(|found| found == value);
    if !is("CARGO_CFG_TARGET_FAMILY", "unix") || is("CARGO_CFG_TARGET_VENDOR", "apple") {
        return;
    }
    // Versions with the same first number serve for each other.
    let soname = concat!("-Wl,-soname,libleasehold.so.", env!("CARGO_PKG_VERSION_MAJOR"));
    // A thread of ours may be about to end when the library is closed.
    let stays = "-Wl,-z,nodelete";
    // For programs too, to which both mean nothing: cargo gives them to a cdylib alone only where the
    // manifest lists one, and then every Rust user builds it.
    for argument in [soname, stays] {
        println!("cargo::rustc-link-arg={argument}");
    }
}
