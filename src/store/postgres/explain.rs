//! Why the server refused a statement, or answered what cannot be: the right that the user lacks, a row
//! that no program of ours has written, or what somebody has added to a table. Asked only then.

use super::fault::RIGHTS;
use super::wire::Wire;
use crate::clock::Deadline;
use crate::config::limits::MAX_FENCE;
use crate::error::{Error, ErrorKind};

/// What the statement was for, with the key of its name where it has one.
#[derive(Clone, Copy)]
pub(super) enum Need<'a> {
    /// Which tables there are.
    Version,
    Lock(&'a [u8]),
    Look(Option<&'a [u8]>),
    Break(&'a [u8]),
    Breach(&'a [u8]),
    Client,
}

/// Tables with what is done there.
pub(super) type Rights = &'static [(&'static str, &'static [&'static str])];

const ALL: &[&str] = &["SELECT", "INSERT", "UPDATE", "DELETE"];
/// What `docs/operate/rights.md` gives to a program.
#[cfg(feature = "examine")]
pub(super) const OF_A_LOCK: Rights = &[("version", &["SELECT"]), ("lease", ALL)];
/// Without these, somebody is not told who has a lock, or who has broken it.
#[cfg(feature = "examine")]
pub(super) const LESSER: Rights = &[("client", ALL), ("broken", &["SELECT"])];
/// Who may do some of this is meant to break locks.
#[cfg(feature = "examine")]
pub(super) const OF_A_BREAK: Rights = &[("broken", &["INSERT", "UPDATE", "DELETE"])];

impl<'a> Need<'a> {
    fn rights(self) -> Rights {
        match self {
            Need::Version => &[("version", &["SELECT"])],
            // Without DELETE, rows that nobody uses stay.
            Need::Lock(_) => {
                &[("version", &["SELECT"]), ("lease", &["SELECT", "INSERT", "UPDATE"])]
            }
            Need::Look(_) => &[("version", &["SELECT"]), ("lease", &["SELECT"])],
            Need::Break(_) => {
                &[("version", &["SELECT"]), ("lease", &["SELECT", "UPDATE"]), ("broken", ALL)]
            }
            Need::Breach(_) => &[("version", &["SELECT"]), ("broken", &["SELECT"])],
            Need::Client => &[("version", &["SELECT"]), ("client", ALL)],
        }
    }

    fn key(self) -> Option<&'a [u8]> {
        match self {
            Need::Lock(key) | Need::Break(key) | Need::Breach(key) => Some(key),
            Need::Look(key) => key,
            Need::Client | Need::Version => None,
        }
    }
}

/// The question which of these the user lacks. The answer is one text: a GRANT for each table, or nothing.
pub(super) fn lacking(rights: Rights) -> String {
    let mut needs = Vec::new();
    for (table, kinds) in rights {
        for kind in *kinds {
            needs.push(format!("({}, '{table}', '{kind}')", needs.len() + 1));
        }
    }
    format!(
        "SELECT coalesce(string_agg('GRANT ' || kinds || ' TO ' || quote_ident(current_user) || ';', \
             ' ' ORDER BY rank), '') \
         FROM (SELECT 0 AS rank, 'USAGE ON SCHEMA leasehold' AS kinds FROM pg_namespace \
                WHERE nspname = 'leasehold' AND NOT has_schema_privilege(oid, 'USAGE') \
             UNION ALL \
             SELECT min(rank), string_agg(kind, ', ' ORDER BY rank) || ' ON leasehold.' || name \
                FROM (VALUES {}) AS need (rank, name, kind) \
                JOIN pg_class ON relname = name AND relkind IN ('r', 'p') \
                JOIN pg_namespace AS space ON space.oid = relnamespace AND nspname = 'leasehold' \
                WHERE NOT has_table_privilege(pg_class.oid, kind) GROUP BY name) AS lacks",
        needs.join(", ")
    )
}

/// The first row that no program of ours has written, as a key in hex and what is wrong there; of this
/// name, where one is given.
fn strange(key: Option<&[u8]>) -> String {
    let name = key.map_or_else(String::new, |key| format!("name = '{}' AND", hex(key)));
    // Behind the last fence there has to be another one, or a turn for each thread.
    let fence = |column: &str, most: u64| {
        format!(
            "CASE WHEN ({column} BETWEEN 1 AND {most}) IS NOT true \
                THEN '{column} = ' || coalesce({column}::text, 'NULL') END"
        )
    };
    // A waiter is handed a lock for 366 days at most. What is in it is not shown: its whole token is
    // nobody else's business.
    format!(
        "SELECT name::text, said FROM (SELECT name, concat_ws(', ', {}, {}, \
            CASE WHEN isfinite(expiry) IS NOT true \
                THEN 'expiry = ' || coalesce(expiry::text, 'NULL') END, \
            CASE WHEN used IS NULL THEN 'used = NULL' END, \
            CASE WHEN waiters IS NULL THEN 'waiters = NULL' \
                WHEN EXISTS (SELECT FROM unnest(waiters) AS w WHERE w.token IS NULL \
                    OR (w.ticket BETWEEN 1 AND {MAX_FENCE}) IS NOT true \
                    OR (w.span BETWEEN 0 AND 31622400000) IS NOT true) \
                THEN 'waiters with a value that is missing or out of range' END) AS said \
         FROM leasehold.lease) AS found WHERE {name} said <> '' LIMIT 1",
        fence("first", MAX_FENCE),
        fence("last", MAX_FENCE - 64),
    )
}

/// Statements that take away what somebody has added to the tables.
const ADDED: &str = "SELECT coalesce(string_agg(said, ' '), '') FROM ( \
     SELECT 'DROP TRIGGER ' || quote_ident(tgname) || ' ON leasehold.' || relname || ';' AS said \
         FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid \
         JOIN pg_namespace AS space ON space.oid = relnamespace AND nspname = 'leasehold' \
         WHERE NOT tgisinternal AND tgenabled <> 'D' \
     UNION ALL \
     SELECT 'DROP RULE ' || quote_ident(rulename) || ' ON leasehold.' || tablename || ';' \
         FROM pg_rules WHERE schemaname = 'leasehold' \
     UNION ALL \
     SELECT 'ALTER TABLE leasehold.' || relname || ' DROP CONSTRAINT ' || quote_ident(conname) || ';' \
         FROM pg_constraint JOIN pg_class ON pg_class.oid = conrelid \
         JOIN pg_namespace AS space ON space.oid = relnamespace AND nspname = 'leasehold' \
         WHERE contype NOT IN ('p', 'n') \
     UNION ALL \
     SELECT 'ALTER TABLE leasehold.' || relname || ' DISABLE ROW LEVEL SECURITY;' \
         FROM pg_class JOIN pg_namespace AS space ON space.oid = relnamespace \
         WHERE nspname = 'leasehold' AND relrowsecurity) AS added";

/// The error in better words, where the server tells more. Where it does not answer in time, the wire
/// [is owing](Wire::is_owing) that.
pub(super) fn explain(wire: &mut Wire, error: Error, need: Need<'_>, deadline: Deadline) -> Error {
    let mut ask = |question: &str| -> Option<(String, String)> {
        if wire.is_owing() {
            return None;
        }
        let (mut rows, refused) = wire.ask(question, 1, deadline).ok()?;
        let row = rows.pop().flatten().filter(|_| refused.is_none())?;
        let text = |at| row.column(at).map(|it| String::from_utf8_lossy(it).into_owned());
        Some((text(0)?, text(1).unwrap_or_default()))
    };
    if error.kind() == ErrorKind::Permission {
        let said = error.detail().strip_prefix(RIGHTS).unwrap_or_default().to_owned();
        if let Some((grants, _)) = ask(&lacking(need.rights())).filter(|(it, _)| !it.is_empty()) {
            return Error::mended(error.kind(), format!("a right is missing: {grants}{said}"));
        }
    } else if let Some((name, what)) = ask(&strange(need.key())) {
        let detail = format!(
            "the row of leasehold.lease with name = '{name}' has {what}, which no program of \
             Leasehold writes: once nobody relies on that lock, DELETE FROM leasehold.lease WHERE \
             name = '{name}';"
        );
        return Error::mended(ErrorKind::WrongType, detail);
    }
    match ask(ADDED).filter(|(mends, _)| !mends.is_empty()) {
        Some((mends, _)) => {
            let detail = format!(
                "something that Leasehold did not make keeps it from writing to its tables: {mends} \
                 ({})",
                error.detail()
            );
            Error::mended(ErrorKind::Storage, detail)
        }
        None => error,
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("\\x{digits}")
}
