//! Which library this is.

use std::ffi::c_char;

/// The version of this library, as text like "0.1.0". It is static: never free it.
#[unsafe(no_mangle)]
pub extern "C" fn leasehold_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
