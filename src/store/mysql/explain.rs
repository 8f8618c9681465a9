//! Why the server refused a statement: the right that the user lacks, a row that no program of ours has
//! written, or a trigger. Asked only then.

use super::fault::{self, RIGHTS};
use super::wire::{Refusal, Wire};
use crate::clock::Deadline;
use crate::config::limits::MAX_FENCE;
use crate::error::{Error, ErrorKind};

/// The error in better words, where the server tells more. `text` is what was refused. Where that was
/// in a transaction, it is rolled back first: its rows are others' again while the server is asked. The
/// connection is of no use any more.
pub(super) fn explain(wire: &mut Wire, refusal: &Refusal, text: &str, deadline: Deadline) -> Error {
    let error = refusal.error.clone();
    let mut is_silent = false;
    let mut ask = |question: &str| -> Option<Vec<String>> {
        if is_silent {
            // What comes late would be read as the answer to this.
            return None;
        }
        let asked = wire.ask(&format!("ROLLBACK; {question}"), deadline);
        is_silent = asked.is_err();
        let (said, refused) = asked.ok()?;
        let row = said.last()?.rows.first().filter(|_| refused.is_none())?;
        let text = |at| row.column(at).map(|it| String::from_utf8_lossy(it).into_owned());
        Some((0..).map_while(text).filter(|it| !it.is_empty()).collect())
    };
    match error.kind() {
        ErrorKind::Permission => {
            let Some((right, table)) = denied(error.detail()) else { return error };
            // The message has the host that the user came from, and not the one of the account.
            let Some(row) = ask("SELECT CURRENT_USER(), DATABASE()") else { return error };
            let [user, database] = &row[..] else { return error };
            let Some((user, host)) = user.rsplit_once('@') else { return error };
            let said = error.detail().strip_prefix(RIGHTS).unwrap_or_default();
            let database = quoted(database);
            let grant = format!("GRANT {right} ON {database}.{table} TO '{user}'@'{host}';");
            Error::mended(ErrorKind::Permission, format!("a right is missing: {grant}{said}"))
        }
        ErrorKind::Protocol | ErrorKind::Storage | ErrorKind::WrongType => {
            if let Some(row) = ask(&strange(text))
                && let [name, what] = &row[..]
            {
                let detail = format!(
                    "the row of leasehold_lease with name = x'{name}' has {what}, which no program \
                     of Leasehold writes: once nobody relies on that lock, DELETE FROM \
                     leasehold_lease WHERE name = x'{name}';"
                );
                return Error::mended(ErrorKind::WrongType, detail);
            }
            let triggers = ask(TRIGGERS).filter(|_| refusal.code == fault::SIGNAL);
            match triggers.as_deref() {
                Some([mends]) => {
                    let said = error.detail();
                    let detail = format!(
                        "a trigger that Leasehold did not make keeps it from writing to its tables: \
                         {mends} ({said})"
                    );
                    Error::mended(ErrorKind::Storage, detail)
                }
                _ => error,
            }
        }
        _ => error,
    }
}

/// A name as a statement has it.
pub(super) fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

const TRIGGERS: &str = "SELECT GROUP_CONCAT(CONCAT('DROP TRIGGER `', \
     REPLACE(TRIGGER_NAME, '`', '``'), '`;') SEPARATOR ' ') FROM information_schema.TRIGGERS \
     WHERE EVENT_OBJECT_SCHEMA = DATABASE() AND EVENT_OBJECT_TABLE LIKE 'leasehold\\_%'";

/// The first row that no program of ours has written, of a name that these statements have.
fn strange(text: &str) -> String {
    // All that they are given stands in them in hex.
    let given: Vec<&str> =
        text.split("x'").skip(1).filter_map(|it| it.split('\'').next()).collect();
    let given = given.iter().map(|hex| format!("x'{hex}'")).collect::<Vec<_>>().join(",");
    let given = if given.is_empty() { "NULL".to_owned() } else { given };
    // Behind the last fence there has to be another one.
    let number = |column: &str, least: u64, most: u64| {
        format!(
            "IF({column} BETWEEN {least} AND {most}, NULL, \
                CONCAT('{column} = ', COALESCE({column}, 'NULL')))"
        )
    };
    format!(
        "SELECT HEX(name), said FROM (SELECT name, CONCAT_WS(', ', {}, {}, {}) AS said \
         FROM leasehold_lease WHERE name IN ({given})) found WHERE said <> '' LIMIT 1",
        number("fence", 1, MAX_FENCE),
        number("last_fence", 1, MAX_FENCE - 64),
        number("expiry", 0, MAX_FENCE),
    )
}

/// The right and the table of a message such as `INSERT command denied to user 'app'@'host' for table
/// 'leasehold_broken'`.
fn denied(said: &str) -> Option<(&str, &str)> {
    let (right, rest) = said.split_once(" command denied to user ")?;
    let right = right.rsplit(' ').next()?;
    let (_, table) = rest.rsplit_once(" table ")?;
    let table = table.rsplit('.').next()?.trim_matches([')', '\'', '`']);
    Some((right, table))
}

#[cfg(test)]
mod tests {
    use super::denied;

    #[test]
    fn the_right_and_the_table_of_a_denial_are_read() {
        for of in [
            "for table `d`.`leasehold_lease`",
            "for table 'leasehold_lease'",
            "for column 'n' in table 'leasehold_lease'",
        ] {
            let said = format!("a (1142 INSERT command denied to user 'u'@'h' {of})");
            assert_eq!(denied(&said), Some(("INSERT", "leasehold_lease")), "{said}");
        }
        assert_eq!(denied("a (1044 Access denied for user 'u'@'h' to database 'd')"), None);
    }
}
