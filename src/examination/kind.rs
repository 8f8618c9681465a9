//! The kinds of findings. Their sentences are the rows of docs/reference/findings.md, which the compiler looks up.

use super::Severity;

const PAGE: &str = include_str!("../../docs/reference/findings.md");

/// What all findings of one id have in common.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) id: &'static str,
    /// The page from behind the id on.
    row: &'static str,
}

/// The kind of this id. Without a row on the page, it does not compile.
macro_rules! kind {
    ($id:literal) => {
        const { $crate::examination::Kind::of($id, concat!("\n| `", $id, "` | ")) }
    };
}
pub(crate) use kind;

/// Those of some findings that are so: of each the id, when it is so, and the details.
macro_rules! findings {
    ($found:ident, $at:expr; $($id:literal if $is_so:expr => $said:literal $(, $detail:expr)*;)*) => {$(
        if $is_so {
            $found.found($at, $crate::examination::kind!($id), format_args!($said $(, $detail)*));
        }
    )*};
}
pub(crate) use findings;

impl Kind {
    /// The row begins like this.
    pub(crate) const fn of(id: &'static str, start: &str) -> Kind {
        let (page, start, mut at, mut same) = (PAGE.as_bytes(), start.as_bytes(), 0, 0);
        while same < start.len() {
            // A row begins with its only line break, so that nothing of it has to be looked at twice.
            same = if page[at] == start[same] { same + 1 } else { (page[at] == start[0]) as usize };
            at += 1;
        }
        Kind { id, row: PAGE.split_at(at).1 }
    }

    /// What is so, why that matters, and what to type.
    pub(super) fn sentences(self) -> (Severity, [&'static str; 3]) {
        let row = self.row.split(" |\n").next().unwrap_or_default();
        let mut cells = row.split(" | ");
        let severity = match cells.next() {
            Some("note") => Severity::Note,
            _ => Severity::Warning,
        };
        (severity, [(); 3].map(|()| cells.next().unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(folder: &std::path::Path) -> String {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let text = |path: std::path::PathBuf| match path.is_dir() {
            true => sources(&path),
            false => std::fs::read_to_string(path).unwrap_or_default(),
        };
        entries.map(text).collect()
    }

    #[test]
    fn each_row_of_the_page_is_a_kind_of_the_code_and_is_whole() {
        let sources = sources(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
        let mut ids = Vec::new();
        for row in PAGE.lines().filter_map(|line| line.strip_prefix("| `")) {
            let [id, severity, ..] = row.split(" | ").collect::<Vec<_>>()[..] else {
                panic!("{row}")
            };
            assert!(sources.contains(&format!("\"{}\"", id.trim_end_matches('`'))), "{row}");
            assert!(["note", "warning"].contains(&severity), "{row}");
            assert_eq!((row.matches(" | ").count(), row.ends_with(" |")), (4, true), "{row}");
            ids.push(id);
        }
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!((ids.len(), count > 100), (count, true));
    }
}
