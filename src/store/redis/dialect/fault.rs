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

fn server_kind(code: &str, details: &str) -> ErrorKind {
    if let Some(kind) = by_code(code) {
        return kind;
    }
    // Servers before 7.0 wrap what went wrong inside a script in a message of their own.
    let mut wrapped =
        details.split([' ', ':']).filter_map(|word| by_code(word.trim_start_matches('-')));
    let said = || SAID.iter().find(|(text, _)| details.contains(text)).map(|(_, kind)| *kind);
    wrapped.next().or_else(said).unwrap_or(ErrorKind::Protocol)
}

/// What servers say without a code of its own.
const SAID: [(&str, ErrorKind); 10] = [
    ("can't run this command", ErrorKind::Permission),
    ("can't access", ErrorKind::Permission),
    ("ACL failure", ErrorKind::Permission),
    ("no permissions", ErrorKind::Permission),
    ("max number of clients", ErrorKind::Unavailable),
    ("attempted to access a non local key", ErrorKind::Unavailable),
    // From our own scripts: one of the clocks is wrong, until somebody sets it.
    ("clock is more than an hour ahead", ErrorKind::Unavailable),
    ("invalid password", ErrorKind::Auth),
    ("without any password configured", ErrorKind::Auth),
    ("DB index", ErrorKind::BadArgument),
];

fn by_code(code: &str) -> Option<ErrorKind> {
    Some(match code {
        "NOAUTH" | "WRONGPASS" => ErrorKind::Auth,
        "NOPERM" => ErrorKind::Permission,
        "WRONGTYPE" => ErrorKind::WrongType,
        "READONLY" => ErrorKind::ReadOnly,
        "OOM" => ErrorKind::OutOfMemory,
        "LOADING" | "BUSY" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "MISCONF"
        | "NOREPLICAS" => ErrorKind::Unavailable,
        // It was loaded and the call sent again already: somebody keeps flushing the scripts.
        "NOSCRIPT" => ErrorKind::Unavailable,
        _ => return None,
    })
}

/// An error on the way to or from the server.
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

/// Bytes that are no reply.
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
