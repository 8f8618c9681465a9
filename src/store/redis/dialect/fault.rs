//! What went wrong, in Leasehold's own words.

use redis::{RedisError, ServerError};

use crate::error::{Error, ErrorKind};
pub(in crate::store::redis) use crate::store::net::failed as io;

/// An error that the server replied. The request was not carried out.
pub(in crate::store::redis) fn server(error: &ServerError) -> Error {
    let (code, details) = (error.code(), error.details().unwrap_or(""));
    if code == "MOVED" || code == "ASK" {
        let what =
            "the server belongs to a Cluster; a URL with redis+cluster:// leads to all of it";
        return Error::new(ErrorKind::BadArgument, what);
    }
    if let Some(command) = details.strip_prefix("unknown command '") {
        let command = command.split('\'').next().unwrap_or_default();
        let what = match command {
            "SENTINEL" => {
                "this server is no Sentinel: write redis://host[:port] for a Redis, or name \
                           the Sentinels' port, 26379"
            }
            _ => {
                "this server is a Sentinel (write redis+sentinel://host/master), is older than Redis \
                  6.2, or has the command renamed or taken away (rename-command)"
            }
        };
        let said = format!("the command {command} is unknown: {what}");
        return Error::mended(ErrorKind::Protocol, said);
    }
    let (kind, said) = (server_kind(code, details), format!("{code} {details}"));
    let mend = mend(kind, &said);
    let is_mended = kind == ErrorKind::WrongType && mend.is_some();
    let detail = mended(mend, said.trim_end());
    if is_mended { Error::mended(kind, detail) } else { Error::new(kind, detail) }
}

/// What the server said, behind what to do about it.
fn mended(mend: Option<String>, said: &str) -> String {
    mend.map_or_else(|| said.to_owned(), |mend| format!("{mend} ({said})"))
}

/// What to type, where the kind of the error does not say all of it. USER and NAME stand for what
/// the URL and the caller have.
fn mend(kind: ErrorKind, said: &str) -> Option<String> {
    Some(match kind {
        ErrorKind::Auth if said.contains("NOAUTH") => {
            "it wants a password: write redis://:password@host or redis://user:password@host, for a \
             unix socket ?password=, and for Sentinels ?sentinel_password="
                .to_owned()
        }
        ErrorKind::Auth if said.contains("without any password") => {
            "its user 'default' has no password: leave the password out of the URL, or name \
             another user, as in redis://user:password@host"
                .to_owned()
        }
        ErrorKind::Auth => "the password is wrong, or the user is missing or disabled; without one \
             in the URL the user is 'default', and another stands in front, as in \
             redis://user:password@host"
            .to_owned(),
        ErrorKind::WrongType if said.contains("WRONGTYPE") => {
            "a key of this name is of another type than ours, NAME itself, leasehold:{NAME} or \
             leasehold:queue:{NAME} (TYPE says which): DEL that key, or choose another name or prefix"
                .to_owned()
        }
        ErrorKind::WrongType if said.contains("the side key of this name") => {
            "the key leasehold:{NAME} holds what no program of Leasehold writes: once nobody relies on \
             that lock, DEL leasehold:{NAME}"
                .to_owned()
        }
        ErrorKind::WrongType if said.contains("the fence of this name") => {
            "the key leasehold:{NAME} has so large a fence that none is left above it: once nobody \
             relies on that lock, DEL leasehold:{NAME}"
                .to_owned()
        }
        ErrorKind::DiskFull => "it cannot write its append-only file".to_owned(),
        ErrorKind::Unavailable if said.contains("MISCONF") => {
            "it could not save its data, mostly because its disk is full: its log says why".to_owned()
        }
        ErrorKind::ReadOnly => "it is a replica; connect to the master".to_owned(),
        ErrorKind::Permission if said.contains("channel") => {
            "a channel is missing: ACL SETUSER USER &leasehold:wake:*".to_owned()
        }
        ErrorKind::Permission if said.contains("key") => {
            "a key is missing: ACL SETUSER USER ~NAME ~leasehold:{NAME} ~leasehold:queue:{NAME}, and \
             where lost data is guarded against ~leasehold:marker*"
                .to_owned()
        }
        ErrorKind::Permission => {
            allow(said.split_once("to run the '")?.1.split_once('\'').map(|(name, _)| name)?)
        }
        _ => return None,
    })
}

fn allow(command: &str) -> String {
    let command = command.to_ascii_lowercase();
    format!("the command {command} is missing: ACL SETUSER USER +{command}")
}

/// The same of a script of which is known which command was forbidden.
pub(super) fn forbidden(command: &str, explained: &Error) -> Error {
    let said = explained.detail();
    // What is missing may be a key, or be said already.
    let detail = match said.contains("ACL SETUSER") {
        true => format!("{command}: {said}"),
        false => mended(Some(allow(command)), said),
    };
    Error::new(explained.kind(), detail)
}

/// Servers before 7.0 wrap what went wrong inside a script in a message of their own.
fn server_kind(code: &str, details: &str) -> ErrorKind {
    let is_said = |text: &&str| code == *text || details.contains(*text);
    let found = SAID.iter().find(|(_, texts)| texts.iter().any(is_said));
    found.map_or(ErrorKind::Protocol, |(kind, _)| *kind)
}

/// The codes of servers, and what they say without a code of its own.
const SAID: [(ErrorKind, &[&str]); 15] = [
    (ErrorKind::Auth, &["NOAUTH", "WRONGPASS", "invalid password"]),
    (ErrorKind::Auth, &["without any password configured"]),
    (ErrorKind::Permission, &["NOPERM", "can't run this command", "can't access"]),
    (ErrorKind::Permission, &["ACL failure", "no permissions"]),
    (ErrorKind::WrongType, &["WRONGTYPE"]),
    // From our own scripts: somebody else has written the key beside a name's.
    (ErrorKind::WrongType, &["the side key of this name", "the fence of this name"]),
    (ErrorKind::ReadOnly, &["READONLY"]),
    (ErrorKind::OutOfMemory, &["OOM"]),
    (ErrorKind::DiskFull, &["No space left on device", "Disk quota exceeded"]),
    (ErrorKind::Unavailable, &["LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN"]),
    (ErrorKind::Unavailable, &["MISCONF", "NOREPLICAS", "max number of clients"]),
    (ErrorKind::Unavailable, &["attempted to access a non local key"]),
    // It was loaded and the call sent again already: somebody keeps flushing the scripts.
    (ErrorKind::Unavailable, &["NOSCRIPT"]),
    // From our own scripts: one of the clocks is wrong, until somebody sets it.
    (ErrorKind::Unavailable, &["clock is more than an hour ahead"]),
    (ErrorKind::BadArgument, &["DB index"]),
];

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
            (
                "MISCONF",
                "Errors writing to the AOF file: No space left on device",
                ErrorKind::DiskFull,
            ),
            ("MISCONF", "Redis is configured to save RDB snapshots", ErrorKind::Unavailable),
            ("ERR", "invalid password", ErrorKind::Auth),
            ("ERR", "DB index is out of range", ErrorKind::BadArgument),
            ("LOADING", "Redis is loading the dataset in memory", ErrorKind::Unavailable),
            ("ERR", "unknown command", ErrorKind::Protocol),
        ] {
            assert_eq!(server_kind(code, details), kind, "{code} {details}");
        }
    }

    #[test]
    fn what_is_missing_is_said_as_it_is_typed() {
        use ErrorKind::{Auth, Permission, ReadOnly, Unavailable};
        for (kind, said, typed) in [
            (Permission, "NOPERM User app has no permissions to run the 'zadd' command", "+zadd"),
            (
                Permission,
                "NOPERM this user has no permissions to run the 'script|load' command or its \
                 subcommand",
                "+script|load",
            ),
            (Permission, "NOPERM No permissions to access a key", "~leasehold:{NAME} "),
            (
                Permission,
                "NOPERM this user has no permissions to access one of the channels used as \
                 arguments",
                "&leasehold:wake:*",
            ),
            (Auth, "NOAUTH Authentication required.", "redis://:password@host"),
            (Auth, "WRONGPASS invalid username-password pair", "redis://user:password@host"),
            (Auth, "ERR AUTH <password> called without any password configured", "leave the"),
            (ReadOnly, "READONLY You can't write", "connect to the master"),
        ] {
            let mend = mend(kind, said).unwrap();
            assert!(mend.contains(typed), "{said}: {mend}");
        }
        assert_eq!(mend(Permission, "ERR can't run this command or subcommand"), None);
        assert_eq!(mend(Unavailable, "LOADING"), None);
        let said = Error::new(Permission, "ERR can't run this command");
        let said = forbidden("ZADD", &said);
        assert_eq!(
            said.detail(),
            "the command zadd is missing: ACL SETUSER USER +zadd (ERR can't run this command)"
        );
    }
}
