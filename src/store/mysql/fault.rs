//! What went wrong, in Leasehold's own words.

use super::statements::SCHEMA;
use crate::error::{Error, ErrorKind};
pub(super) use crate::store::net::failed as io;
use crate::store::schema::what_makes;

/// An error that the server answered, by its number.
pub(super) fn server(code: u16, message: &str) -> Error {
    let (kind, mend) = match code {
        1045 | 1698 => (ErrorKind::Auth, "the user or the password is wrong"),
        1251 | 1275 | 2059 => (ErrorKind::Auth, "the server does not accept this way to log in"),
        1862 | 1820 => (ErrorKind::Auth, "the password has expired: set another one"),
        1049 => (
            ErrorKind::BadArgument,
            "name another database in the URL, or create this one: CREATE DATABASE",
        ),
        1146 => {
            let statements = what_makes(message, SCHEMA, "leasehold_version");
            let detail = format!("{NO_TABLES}: {statements} ({code} {message})");
            return Error::new(ErrorKind::Storage, detail);
        }
        1054 | 1136 => (ErrorKind::Storage, OTHER_TABLES),
        1044 | 1142 | 1143 | 1227 | 1370 => (ErrorKind::Permission, RIGHTS),
        1290 | 1792 | 1836 => (ErrorKind::ReadOnly, "connect to the primary"),
        1213 | 1062 | 1020 | 3101 => (ErrorKind::Unavailable, "others were faster"),
        1205 | 3572 => (ErrorKind::Unavailable, "another session kept the row"),
        1317 | 1969 | 3024 => (ErrorKind::NoAnswer, "the server gave up waiting"),
        // A connection that is there is used then.
        1040 | 1203 | 1226 => {
            (ErrorKind::Exhausted, "the server has no room for one more connection")
        }
        1021 | 1114 => (ErrorKind::DiskFull, FULL),
        _ if is_full(message) => (ErrorKind::DiskFull, FULL),
        // No memory, a node that has lost its cluster.
        1026 | 1030 | 1037 | 1038 | 1041 | 1047 | 1053 | 1105 | 1129 | 1180 | 1181 | 1598
        | 1927 | 3100 | 3169 | 4031 => (ErrorKind::Unavailable, "the server cannot serve now"),
        1665 => {
            (ErrorKind::Storage, "the server needs binlog_format=ROW or MIXED for these tables")
        }
        1130 => (ErrorKind::Auth, "the server accepts no login from this host"),
        SIGNAL => (ErrorKind::Storage, TRIGGER),
        // A CHECK, or a number that is out of range.
        1264 | 1690 | 3819 | 4025 => (ErrorKind::WrongType, VALUE),
        1064 => (ErrorKind::Protocol, "the server is no MySQL 8.0 or MariaDB 10.6 or later"),
        _ => (ErrorKind::Protocol, "the server refused"),
    };
    Error::new(kind, format!("{mend} ({code} {message})"))
}

const FULL: &str = "its disk is full, or a limit of its tablespace is reached";

/// What the system says of a full disk or a quota stands in the message of other errors.
fn is_full(message: &str) -> bool {
    ["errno: 28", "Errcode: 28", "No space left", "errno: 122", "Disk quota"]
        .iter()
        .any(|said| message.contains(said))
}

const NO_TABLES: &str = "the database has no tables for locks that this user can see, or not all of \
     them: run 'leasehold init --store URL --apply' once, as a user that may create tables, or this";

/// What a trigger says on purpose.
pub(super) const SIGNAL: u16 = 1644;

const TRIGGER: &str = "a trigger that Leasehold did not make refuses what is written to its tables: SHOW \
     TRIGGERS names it, and DROP TRIGGER removes it";

const VALUE: &str = "the row of leasehold_lease has a value that no program of Leasehold writes, or no \
     fence is left for it";

const OTHER_TABLES: &str = "the tables are not those that leasehold init makes: where only the \
     column 'awaited' is missing, run ALTER TABLE leasehold_lease ADD awaited BIGINT NOT NULL DEFAULT 0;";

/// Those of `docs/operate/rights.md`.
pub(super) const RIGHTS: &str = "a right is missing: GRANT SELECT ON leasehold_version, and GRANT SELECT, \
     INSERT, UPDATE, DELETE ON leasehold_lease, leasehold_waiter, leasehold_client and \
     leasehold_broken, each by itself, TO the user";

/// Whether the same request can go well at once: the server rolled it back for the sake of others, or
/// had ended the session before (4031), which it tells in the place of the next answer.
pub(super) fn is_passing(code: u16) -> bool {
    matches!(code, 1020 | 1062 | 1205 | 1213 | 3101 | 3572 | 4031)
}

/// Whether another session keeps a row.
pub(super) fn is_kept(code: u16) -> bool {
    matches!(code, 1205 | 3572)
}

/// Whether nobody knows if a statement was carried out: it may have been at its commit.
pub(super) fn is_unknown(code: u16) -> bool {
    matches!(
        code,
        1026 | 1030 | 1053 | 1105 | 1180 | 1181 | 1317 | 1598 | 1927 | 1969 | 3024 | 3100 | 3169
    )
}
