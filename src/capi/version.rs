//! Which library this is, and what of it is in use.

use std::ffi::c_char;

use super::{boundary, table};

/// The version of the binary interface that this header describes. Within one, functions and
/// constants may be added, and nothing changes. The shared library has it in its name:
/// libleasehold.so.0.
pub const LEASEHOLD_ABI_VERSION: u32 = 0;

/// The version of the library that runs, as "0.1.0". It is static: never free it. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn leasehold_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// The LEASEHOLD_ABI_VERSION of the library that runs. A program that loads the library itself
/// compares it with the header's. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn leasehold_abi_version() -> u32 {
    LEASEHOLD_ABI_VERSION
}

/// How many handles of all types are open in this process: what has been made and not freed. Tools
/// that look for leaks cannot see handles, so tests count them. 0 in a forked child that has
/// opened nothing itself. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn leasehold_handle_count() -> usize {
    boundary::value(0, || Ok(table::count()))
}
