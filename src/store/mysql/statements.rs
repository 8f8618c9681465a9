//! What is said to the server: each statement has a file that says what it is given and answers, and
//! why it may be sent twice and late. Values are written into them as numbers and hex digits only, so
//! that no setting of a session changes what they mean.

use std::fmt::Write;

use crate::token::{ClientId, Token};

pub(super) const SCHEMA: &str = include_str!("schema.sql");
/// Of the tables that the statements here go with.
pub(super) const VERSION: &[u8] = b"1";

pub(super) const CHECK_VERSION: &str = include_str!("version.sql");

/// Of one who comes behind all, where nobody may wait.
pub(super) const QUICK_TAKE: &str =
    concat!(include_str!("take.sql"), include_str!("if_unawaited.sql"));
pub(super) const TAKE: &str = concat!(include_str!("take.sql"), include_str!("if_first.sql"));
pub(super) const TAKE_NEW: &str = include_str!("take_new.sql");
pub(super) const MINE: &str = include_str!("mine.sql");
pub(super) const STATE: &str = include_str!("state.sql");
pub(super) const AWAIT: &str = include_str!("await.sql");
pub(super) const JOIN: &str = include_str!("join.sql");
pub(super) const BURY: &str = include_str!("bury.sql");
pub(super) const STAMP: &str = include_str!("stamp.sql");
pub(super) const LEAVE: &str = include_str!("leave.sql");
pub(super) const LEAVE_WON: &str = include_str!("leave_won.sql");
pub(super) const EXTEND: &str = include_str!("extend.sql");
pub(super) const SET: &str = include_str!("set.sql");
pub(super) const PASS: &str = include_str!("pass.sql");
pub(super) const CLAIM_ROW: &str = include_str!("claim_row.sql");
pub(super) const GIVE: &str = include_str!("give.sql");
pub(super) const GIVE_REST: &str = include_str!("give_rest.sql");
pub(super) const SWEEP: &str = include_str!("sweep.sql");
pub(super) const WAITERS: &str = include_str!("waiters.sql");
pub(super) const REGISTER: &str = include_str!("register.sql");
pub(super) const UNREGISTER: &str = include_str!("unregister.sql");
pub(super) const RECORDS: &str = include_str!("records.sql");
pub(super) const FORGET_CLIENTS: &str = include_str!("forget_clients.sql");
pub(super) const LIST: &str = include_str!("list.sql");
pub(super) const BREAK: &str = include_str!("break.sql");
pub(super) const NOTE: &str = include_str!("note.sql");
pub(super) const BREACH: &str = include_str!("breach.sql");
pub(super) const FORGET_BREACHES: &str = include_str!("forget_breaches.sql");
pub(super) const BEGIN: &str = "START TRANSACTION";
pub(super) const COMMIT: &str = "COMMIT";

/// The server's clock, which no time zone moves.
const NOW: &str = "TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))";

/// What the statements of one request are given.
#[derive(Clone, Copy, Default)]
pub(super) struct Values<'a> {
    pub(super) name: &'a [u8],
    pub(super) token: Option<Token>,
    /// For which a lock is passed on.
    pub(super) to: Option<Token>,
    pub(super) ticket: Ticket,
    pub(super) fence: u64,
    pub(super) block: u32,
    /// Both in microseconds.
    pub(super) ttl: u64,
    pub(super) window: u64,
    pub(super) clients: &'a [ClientId],
    pub(super) record: &'a [u8],
    pub(super) most: usize,
    pub(super) after: &'a [u8],
    pub(super) until: &'a [u8],
}

#[derive(Clone, Copy, Default)]
pub(super) enum Ticket {
    /// Behind all that have one.
    #[default]
    None,
    Known(u64),
    /// The one that the statement before has made.
    Just,
}

impl Ticket {
    /// That of a take, where 0 is none.
    pub(super) fn of(ticket: u64) -> Ticket {
        if ticket > 0 { Ticket::Known(ticket) } else { Ticket::None }
    }
}

/// Several statements as one packet has them.
pub(super) fn packet(statements: &[&str], values: &Values<'_>) -> String {
    let mut out = String::with_capacity(1024);
    statements.iter().for_each(|statement| add(&mut out, statement, values));
    out
}

/// Adds a statement to a packet, with its values and without its comments.
pub(super) fn add(out: &mut String, statement: &str, values: &Values<'_>) {
    if !out.is_empty() {
        out.push(';');
    }
    for line in statement.lines().filter(|line| !line.starts_with("--")) {
        let mut pieces = line.split(':');
        out.push_str(pieces.next().unwrap_or_default());
        for piece in pieces {
            let end =
                piece.find(|letter: char| !letter.is_ascii_lowercase()).unwrap_or(piece.len());
            let (word, rest) = piece.split_at(end);
            value(out, word, values);
            out.push_str(rest);
        }
        out.push('\n');
    }
}

fn value(out: &mut String, word: &str, values: &Values<'_>) {
    // A string has room.
    let _ = match (word, values.ticket) {
        ("now", _) => write!(out, "{NOW}"),
        ("name", _) => return hex(out, values.name),
        ("token", _) => return hex(out, &values.token.map(Token::bits).unwrap_or_default()),
        ("to", _) => return hex(out, &values.to.map(Token::bits).unwrap_or_default()),
        ("ticket", Ticket::None) => write!(out, "{}", i64::MAX),
        ("ticket", Ticket::Known(ticket)) => write!(out, "{ticket}"),
        ("ticket", Ticket::Just) => write!(out, "LAST_INSERT_ID()"),
        ("fence", _) => write!(out, "{}", values.fence),
        ("block", _) => write!(out, "{}", values.block),
        ("ttl", _) => write!(out, "{}", values.ttl),
        ("record", _) => return hex(out, values.record),
        ("after", _) => return hex(out, values.after),
        ("until", _) => return hex(out, values.until),
        ("most", _) => write!(out, "{}", values.most),
        ("clients", _) => {
            let numbers = values.clients.iter().map(|client| client.number().to_string());
            out.push_str(&numbers.collect::<Vec<_>>().join(","));
            Ok(())
        }
        ("window", _) => write!(out, "{}", values.window),
        // None of them has another word, as a test sees.
        (other, _) => write!(out, ":{other}"),
    };
}

fn hex(out: &mut String, bytes: &[u8]) {
    out.push_str("x'");
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            out.push(char::from_digit(digit.into(), 16).unwrap_or('0'));
        }
    }
    out.push('\'');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_that_is_looked_for_is_the_one_that_init_writes() {
        let number = std::str::from_utf8(VERSION).unwrap();
        let written = format!("INSERT IGNORE INTO leasehold_version VALUES ({number})");
        assert!(SCHEMA.contains(&written), "{written}");
        assert!(CHECK_VERSION.contains(&format!("IF(MAX(number) = {number}, 0, 1)")));
    }

    #[test]
    fn each_statement_has_known_values_only_and_no_comment() {
        let values = Values { name: b"it's; \0", ticket: Ticket::Known(7), ..Values::default() };
        let all = [
            CHECK_VERSION,
            QUICK_TAKE,
            TAKE,
            TAKE_NEW,
            MINE,
            STATE,
            AWAIT,
            JOIN,
            BURY,
            STAMP,
            LEAVE,
            LEAVE_WON,
            EXTEND,
            SET,
            PASS,
            CLAIM_ROW,
            GIVE,
            GIVE_REST,
            SWEEP,
            WAITERS,
            REGISTER,
            UNREGISTER,
            RECORDS,
            FORGET_CLIENTS,
            LIST,
            BREAK,
            NOTE,
            BREACH,
            FORGET_BREACHES,
        ];
        for statement in all {
            let text = packet(&[statement], &values);
            assert!(!text.contains("--") && !text.contains(':') && !text.contains(';'), "{text}");
            assert_eq!(text.contains("x'697427733b2000'"), statement.contains(":name"), "{text}");
        }
        assert_eq!(packet(&[BEGIN, COMMIT], &values), "START TRANSACTION\n;COMMIT\n");
    }
}
