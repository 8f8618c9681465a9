//! What went wrong, in Leasehold's own words.

use super::statements::SCHEMA;
use crate::error::{Error, ErrorKind};
pub(super) use crate::store::net::failed as io;
use crate::store::schema::what_makes;

/// An error that the server answered, by its code in PostgreSQL's table of them.
pub(super) fn server(code: &str, message: &str) -> Error {
    let (kind, mend) = match code {
        "28P01" => (ErrorKind::Auth, "the user or the password is wrong"),
        "28000" if message.contains("channel binding") => (ErrorKind::Auth, DECRYPTED),
        "28000" if message.contains("does not exist") => {
            (ErrorKind::Auth, "there is no such user: CREATE ROLE, or name another one in the URL")
        }
        "28000" => (ErrorKind::Auth, "the server's pg_hba.conf does not allow this login"),
        "3D000" => (ErrorKind::BadArgument, "name another database in the URL, or create this one"),
        "42704" if message.contains("plan_cache_mode") => (ErrorKind::Storage, TOO_OLD),
        "42704" if message.contains("configuration parameter") => (
            ErrorKind::BadArgument,
            "options= in the URL has a setting that the server does not know",
        ),
        // Also where the user may see neither of them.
        "42P01" | "3F000" | "42704" => {
            let statements = what_makes(message, SCHEMA, "leasehold.version");
            let detail = format!("{NO_TABLES}: {statements} ({code} {message})");
            return Error::new(ErrorKind::Storage, detail);
        }
        "42501" => (ErrorKind::Permission, RIGHTS),
        "25006" => (ErrorKind::ReadOnly, "connect to the primary"),
        "57014" => (ErrorKind::NoAnswer, "the server gave up waiting, and did nothing"),
        "40001" | "40P01" => (ErrorKind::Unavailable, "others were faster"),
        "55P03" => (ErrorKind::Unavailable, "another session kept the row: pg_locks says which"),
        "53300" => (ErrorKind::Exhausted, FULL),
        "53100" => (ErrorKind::DiskFull, "its disk is full: df on its machine says which"),
        // So where the disk has another reason to refuse, which the server has no code for.
        "58030" if is_full(message) => (ErrorKind::DiskFull, "its disk is full"),
        _ => match code.get(..2) {
            // No memory.
            Some("08" | "53" | "57") => (ErrorKind::Unavailable, "the server cannot serve now"),
            _ => (ErrorKind::Protocol, "the server refused"),
        },
    };
    Error::new(kind, format!("{mend} ({code} {message})"))
}

/// A warning that came with a commit.
pub(super) fn half_committed(code: &str, message: &str) -> Error {
    let said = "the server has committed it, and stopped waiting for a standby to confirm";
    Error::new(ErrorKind::Unavailable, format!("{said} ({code} {message})"))
}

fn is_full(message: &str) -> bool {
    message.contains("No space left") || message.contains("Disk quota exceeded")
}

const FULL: &str = "the server, or this user or database, has all connections that it may have: \
     raise max_connections, or give the clients smaller pools (pool=)";

const DECRYPTED: &str = "what is said is decrypted on the way to the server: by an attacker, or by a proxy, for \
     which channel_binding=disable is";

const TOO_OLD: &str = "the server is no PostgreSQL of version 12 or later";

const NO_TABLES: &str = "the database has no tables for locks that this user can see, or not all of \
     them: run 'leasehold init --store URL --apply' once, as a user that may create a schema, or this";

/// Those of `docs/operate/rights.md`.
pub(super) const RIGHTS: &str = "a right is missing: GRANT USAGE ON SCHEMA leasehold TO the user; \
     GRANT SELECT ON leasehold.version TO the user; \
     GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold.lease TO the user";

/// Whether the same request can go well at once: the server rolled it back for the sake of others.
pub(super) fn is_passing(code: &str) -> bool {
    matches!(code, "40001" | "40P01" | "55P03")
}

/// Whether the session does not know the statement: one that was rolled back before it was accepted.
pub(super) fn is_forgotten(code: &str) -> bool {
    code == "26000"
}

#[cfg(test)]
mod tests {
    use super::server;

    #[test]
    fn a_server_that_is_too_old_is_not_said_to_lack_tables() {
        let old = server("42704", "unrecognized configuration parameter \"plan_cache_mode\"");
        assert!(old.detail().contains("version 12 or later"), "{old}");
        let bare = server("42704", "type \"leasehold.waiter\" does not exist");
        assert!(bare.detail().contains("leasehold init"), "{bare}");
        assert!(bare.detail().contains("CREATE TYPE leasehold.waiter AS ("), "{bare}");
        let unknown = server("42704", "unrecognized configuration parameter \"lock_timout\"");
        assert!(unknown.detail().contains("options= in the URL"), "{unknown}");
    }
}
