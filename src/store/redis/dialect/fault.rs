//! What went wrong, in Leasehold's own words.

use std::io;

use redis::{RedisError, ServerError};

use crate::error::{Error, ErrorKind};

/// An error that the server replied. The request was not carried out.
pub(in crate::store::redis) fn server(error: &ServerError) -> Error {
    let (code, details) = (error.code(), error.details().unwrap_or(""));
    if code == "MOVED" || code == "ASK" {
        let what =
            "the server belongs to a Cluster; a URL with redis+cluster:// leads to all of it";
        return Error::new(ErrorKind::BadArgument, what);
    }
    Error::new(server_kind(code, details), format!("{code} {details}").trim_end().to_owned())
}

/// Servers before 7.0 wrap what went wrong inside a script in a message of their own.
fn server_kind(code: &str, details: &str) -> ErrorKind {
    let is_said = |text: &&str| code == *text || details.contains(*text);
    let found = SAID.iter().find(|(_, texts)| texts.iter().any(is_said));
    found.map_or(ErrorKind::Protocol, |(kind, _)| *kind)
}

/// The codes of servers, and what they say without a code of its own.
const SAID: [(ErrorKind, &[&str]); 13] = [
    (ErrorKind::Auth, &["NOAUTH", "WRONGPASS", "invalid password"]),
    (ErrorKind::Auth, &["without any password configured"]),
    (ErrorKind::Permission, &["NOPERM", "can't run this command", "can't access"]),
    (ErrorKind::Permission, &["ACL failure", "no permissions"]),
    (ErrorKind::WrongType, &["WRONGTYPE"]),
    (ErrorKind::ReadOnly, &["READONLY"]),
    (ErrorKind::OutOfMemory, &["OOM"]),
    (ErrorKind::Unavailable, &["LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN"]),
    (ErrorKind::Unavailable, &["MISCONF", "NOREPLICAS", "max number of clients"]),
    (ErrorKind::Unavailable, &["attempted to access a non local key"]),
    // It was loaded and the call sent again already: somebody keeps flushing the scripts.
    (ErrorKind::Unavailable, &["NOSCRIPT"]),
    // From our own scripts: one of the clocks is wrong, until somebody sets it.
    (ErrorKind::Unavailable, &["clock is more than an hour ahead"]),
    (ErrorKind::BadArgument, &["DB index"]),
];

pub(in crate::store::redis) fn io(what: &str, error: &io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => ErrorKind::NoAnswer,
        _ => match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS) => {
                ErrorKind::Exhausted
            }
            _ => ErrorKind::Refused,
        },
    };
    Error::new(kind, format!("{what}: {error}"))
}

pub(in crate::store::redis) fn reply(error: &RedisError) -> Error {
    Error::new(ErrorKind::Protocol, format!("the reply cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c13_errors_of_old_and_new_servers_find_their_kind() {
        for (code, details, kind) in [
            (
                "NOPERM",
                "this user has no permissions to run the 'evalsha' command",
                ErrorKind::Permission,
            ),
            (
                "ERR",
                "Error running script (call to f_a): @user_script:3: @user_script: 3: -OOM command not allowed",
                ErrorKind::OutOfMemory,
            ),
            (
                "ERR",
                "Error running script (call to f_a): @user_script:3: @user_script: 3: -READONLY You can't write",
                ErrorKind::ReadOnly,
            ),
            (
                "ERR",
                "The user executing the script can't run this command or subcommand",
                ErrorKind::Permission,
            ),
            ("ERR", "max number of clients reached", ErrorKind::Unavailable),
            (
                "LEASEHOLD",
                "this client's clock is more than an hour ahead of this server's",
                ErrorKind::Unavailable,
            ),
            ("ERR", "invalid password", ErrorKind::Auth),
            ("ERR", "DB index is out of range", ErrorKind::BadArgument),
            ("LOADING", "Redis is loading the dataset in memory", ErrorKind::Unavailable),
            ("ERR", "unknown command", ErrorKind::Protocol),
        ] {
            assert_eq!(server_kind(code, details), kind, "{code} {details}");
        }
    }
}
