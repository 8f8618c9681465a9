//! Moving packed scripts to the right server. Knows no key.

mod replies;
pub(super) mod single;
