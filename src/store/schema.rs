//! A schema as an error shows it: what makes a missing table, in one line. And how long a version is
//! relied on.

use std::time::Duration;

/// A connection relies on the version of the tables that it has seen for so long. Then the next request
/// looks at it in the same packet: in each statement the look would cost a tenth of a cycle or more.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) const CHECKED_FOR: Duration = Duration::from_secs(1);

/// Of a schema, the paragraphs that make what a server's message says is missing; all of them where
/// that is the table that is asked for first. `said` is the message, `first` that table's name.
pub(crate) fn what_makes(said: &str, schema: &str, first: &str) -> String {
    let made = |paragraph: &&str| {
        let name = paragraph.split_once("CREATE T").map_or("", |(_, rest)| {
            let rest = rest.split_once("EXISTS ").or_else(|| rest.split_once(' '));
            rest.and_then(|(_, rest)| rest.split_whitespace().next()).unwrap_or("")
        });
        !name.is_empty() && said.contains(name)
    };
    let one = schema.split("\n\n").filter(|_| !said.contains(first)).find(made);
    one.map_or_else(|| line(schema), line)
}

/// Statements without their comments, in one line: a log has it in one field.
fn line(statements: &str) -> String {
    let bare = statements.lines().map(|line| line.split("--").next().unwrap_or_default());
    bare.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = "-- What.\nBEGIN;\n\n-- One.\nCREATE TABLE IF NOT EXISTS a.one (\n    \
        n int  -- a number; more\n);\nCREATE INDEX i ON a.one (n);\n\nDO $$ BEGIN\n    \
        CREATE TYPE a.two AS (n int);\nEND $$;\n\nCOMMIT;\n";

    #[test]
    fn of_a_table_or_type_its_own_paragraph_is_shown_and_of_the_first_all_of_it() {
        let shown = |said| what_makes(said, SCHEMA, "a.first");
        let one = "CREATE TABLE IF NOT EXISTS a.one ( n int ); CREATE INDEX i ON a.one (n);";
        assert_eq!(shown("relation \"a.one\" does not exist"), one);
        assert_eq!(
            shown("type \"a.two[]\" is not"),
            "DO $$ BEGIN CREATE TYPE a.two AS (n int); END $$;"
        );
        let all = format!("BEGIN; {one} DO $$ BEGIN CREATE TYPE a.two AS (n int); END $$; COMMIT;");
        for said in ["a.first is missing, and a.one", "what?", ""] {
            assert_eq!(shown(said), all, "{said}");
        }
    }
}
