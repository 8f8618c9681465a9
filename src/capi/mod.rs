//! The C interface: what `include/leasehold.h` declares, on the public Rust interface.
#![allow(unsafe_code)]
#![allow(non_camel_case_types)]

pub mod version;
