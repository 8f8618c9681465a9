//! What only a test inside can do: make the library panic, and look at the bits of handles. All
//! else about the C interface is tested from C.

pub(super) mod panics;
mod table;
