//! What went wrong, in Leasehold's own words, and whether the request may have been carried out.

use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::store::Failure;
pub(super) use crate::store::net::failed as io;

/// How a stream ended.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// As the server said: a code of gRPC's, 0 if all went well, and why.
    Said(u32, String),
    /// The server has not looked at it.
    Refused,
    /// The server broke it off.
    Reset,
}

/// Those of `docs/operate/rights.md`.
pub(super) const RIGHTS: &str = "a right is missing: etcdctl role grant-permission ROLE --prefix=true readwrite \
     leasehold/";

/// What a server said instead of an answer.
pub(super) fn ended(end: &End, sent: Moment) -> Failure {
    match end {
        End::Refused => {
            Failure::not_done(Error::new(ErrorKind::Unavailable, "the server is about to end"))
        }
        End::Reset => {
            Failure::unknown(Error::new(ErrorKind::Refused, "the server broke it off"), sent)
        }
        End::Said(code, said) => {
            let error = server(*code, said);
            if is_undone(*code, said) {
                Failure::not_done(error)
            } else {
                Failure::unknown(error, sent)
            }
        }
    }
}

/// Whether it is certain that what was answered with this was not carried out, nor will be. What was
/// proposed and not confirmed in time may still be.
fn is_undone(code: u32, said: &str) -> bool {
    // Not found, bad argument, no right, too much, not so, out of range, unknown, who are you, no space.
    // A transaction that makes the space too small is carried out, and answered so.
    let is_full = said.contains("database space exceeded");
    matches!(code, 3 | 5 | 6 | 7 | 8 | 9 | 11 | 12 | 16) && !is_full || said.ends_with("no leader")
}

/// An error that the server answered, by gRPC's code for it and etcd's words.
pub(super) fn server(code: u32, said: &str) -> Error {
    let is = |words: &str| said.contains(words);
    let (kind, mend) = match code {
        _ if is("authentication failed") => (ErrorKind::Auth, "the user or the password is wrong"),
        _ if is("authentication is not enabled") => {
            (ErrorKind::Auth, "the server knows no users: leave user and password out of the URL")
        }
        _ if is("user name is empty") => {
            (ErrorKind::Auth, "the server wants a user: write etcd://user:password@host")
        }
        _ if is("permission denied") => (ErrorKind::Permission, RIGHTS),
        _ if is("database space exceeded") => (
            ErrorKind::DiskFull,
            "its space is used up (--quota-backend-bytes), while leases can still be extended and \
             released: compact, defragment, etcdctl alarm disarm",
        ),
        _ if is("too large") || is("larger than max") => {
            (ErrorKind::BadArgument, "the name is too long for this etcd (--max-request-bytes)")
        }
        _ if is_lost_token(said) => (ErrorKind::Unavailable, "the server asks again who we are"),
        5 if is("lease") => (ErrorKind::Unavailable, "a lease has ended"),
        7 | 16 => (ErrorKind::Permission, RIGHTS),
        4 | 8 | 14 => (ErrorKind::Unavailable, "the cluster cannot serve now"),
        // Unknown: so an etcd says what it has no code for, such as that it stops.
        2 if !is("HTTP status") => (ErrorKind::Unavailable, "the cluster cannot serve now"),
        _ => (ErrorKind::Protocol, "the server refused"),
    };
    Error::new(kind, format!("{mend} ({said})"))
}

/// Whether a lease that the request names has ended.
pub(super) fn is_lost_lease(error: &Error) -> bool {
    error.detail().contains("requested lease not found")
}

/// Whether the server has forgotten who we are: its tokens last for some minutes only.
pub(super) fn is_lost_token(said: &str) -> bool {
    said.contains("invalid auth token") || said.contains("revision of auth store is old")
}

pub(super) fn foreign() -> Error {
    Error::new(
        ErrorKind::Protocol,
        "the server said something that is not etcd's; with TLS it is etcds://, and the port that of \
         clients, 2379",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c4_what_was_proposed_and_not_confirmed_is_unknown() {
        let at = Moment::now();
        let is_unknown =
            |code, said: &str| ended(&End::Said(code, said.to_owned()), at).sent.is_some();
        for (code, said) in [
            (14, "etcdserver: request timed out"),
            (14, "etcdserver: request timed out, possibly due to previous leader failure"),
            (14, "etcdserver: leader changed"),
            (2, "etcdserver: server stopped"),
            (13, "transport"),
            (4, "context deadline exceeded"),
            (8, "etcdserver: mvcc: database space exceeded"),
        ] {
            assert!(is_unknown(code, said), "{said}");
        }
        for (code, said) in [
            (5, "etcdserver: requested lease not found"),
            (7, "etcdserver: permission denied"),
            (8, "etcdserver: too many requests"),
            (14, "etcdserver: no leader"),
            (16, "etcdserver: invalid auth token"),
        ] {
            assert!(!is_unknown(code, said), "{said}");
        }
        assert!(ended(&End::Reset, at).sent.is_some() && ended(&End::Refused, at).sent.is_none());
    }

    #[test]
    fn c13_what_the_server_says_has_a_kind() {
        for (code, said, kind) in [
            (3, "etcdserver: authentication failed, invalid user ID or password", ErrorKind::Auth),
            (3, "etcdserver: user name is empty", ErrorKind::Auth),
            (9, "etcdserver: authentication is not enabled", ErrorKind::Auth),
            (7, "etcdserver: permission denied", ErrorKind::Permission),
            (8, "etcdserver: mvcc: database space exceeded", ErrorKind::DiskFull),
            (14, "etcdserver: request timed out", ErrorKind::Unavailable),
            (2, "HTTP status 404", ErrorKind::Protocol),
        ] {
            assert_eq!(server(code, said).kind(), kind, "{said}");
        }
    }
}
