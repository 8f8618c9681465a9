//! Moving packed scripts to the right server. Knows no key.

pub(super) mod single;
