//! What went wrong, in Leasehold's own words.

use super::jute::code::TOO_LONG;
use super::names::ROOT;
use crate::error::{Error, ErrorKind};
pub(super) use crate::store::net::failed as io;

/// Why the server did not do what was asked, by its number for it.
pub(super) fn server(code: i32) -> Error {
    let (kind, what) = match code {
        -101 => (ErrorKind::Storage, NO_ROOT),
        -102 => (ErrorKind::Permission, RIGHTS),
        -114 => (ErrorKind::Permission, "the server knows no digest authentication"),
        -115 => (ErrorKind::Auth, "the server refused the user or the password"),
        -119 => (ErrorKind::ReadOnly, "this server is cut off from the majority of its ensemble"),
        -125 => (ErrorKind::DiskFull, "a quota of ZooKeeper's is used up (setquota, listquota)"),
        // Connections and sessions that come and go, an overloaded server.
        -4 | -7 | -112 | -118 | -127 => {
            (ErrorKind::Unavailable, "the server cannot serve this now")
        }
        TOO_LONG => return Error::new(ErrorKind::Protocol, CROWD),
        _ => (ErrorKind::Protocol, "the server refused"),
    };
    Error::new(kind, format!("{what} (ZooKeeper's error {code})"))
}

/// The right on our root that these credentials lack; none where it is another node that they may not use.
pub(super) fn no_right(right: Option<&str>, root: &str) -> Error {
    let said = match right {
        Some(right) => format!(
            "the right to {right} is missing on the node {root}: add digest:USER:HASH:crd to what getAcl \
             {root} shows, in setAcl {root} ACL,digest:USER:HASH:crd"
        ),
        None => format!(
            "a node below {root} was made with other credentials, and these may not use it: give all \
             programs the same ones in their URLs"
        ),
    };
    Error::mended(ErrorKind::Permission, said)
}

pub(super) fn silent() -> Error {
    Error::new(ErrorKind::NoAnswer, "the server is silent")
}

const NO_ROOT: &str = "the node 'leasehold' is missing: run 'leasehold init --store URL \
     --apply' once, with the credentials that all programs use, or in zkCli.sh, below the chroot of \
     the URL: create /leasehold 1 (where the URL names a user, behind 'addauth digest USER:PASSWORD', \
     and with auth::cdrwa at its end)";

const CROWD: &str = "the server's answer has more than 8 MB, and is not read: some 100,000 names or waiters \
     stand in one node";

const RIGHTS: &str = "other credentials made the node 'leasehold', or those that all programs use \
     lack a right there: create, delete, read and write";

/// What the root has to say.
pub(super) fn check_root(found: &[u8]) -> Result<(), Error> {
    if found == ROOT.as_bytes() {
        return Ok(());
    }
    let which = format!(
        "the nodes below 'leasehold' are of another kind ('{}', and this program knows '{ROOT}'): \
         use one version of Leasehold for all programs",
        found.escape_ascii()
    );
    Err(Error::new(ErrorKind::Storage, which))
}
