//! The lines of the log: a word, and fields that a person reads and a program parses. The page
//! `docs/reference/log.md` has all of them.

use std::fmt::{Display, Formatter, Result};

use crate::error::{Error, plain};

/// Logs a line: its level, its word, and its fields; one whose text is empty is left out.
macro_rules! say {
    ($level:ident, $word:literal $(, $field:ident = $value:expr)* $(,)?) => {
        ::log::log!(
            ::log::Level::$level,
            "{}",
            $crate::said::Line($word, &[$((stringify!($field), &$value)),*])
        )
    };
}
pub(crate) use say;

/// What a field may have.
pub(crate) trait Value {
    fn text(&self) -> String;
}

/// A name, which need not be UTF-8.
impl Value for &[u8] {
    fn text(&self) -> String {
        plain(self)
    }
}

impl Value for &str {
    fn text(&self) -> String {
        plain(self)
    }
}

impl Value for Error {
    fn text(&self) -> String {
        plain(self.to_string())
    }
}

impl Value for u64 {
    fn text(&self) -> String {
        self.to_string()
    }
}

pub(crate) struct Line<'a>(pub(crate) &'a str, pub(crate) &'a [(&'a str, &'a dyn Value)]);

impl Display for Line<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(self.0)?;
        for (field, value) in self.1 {
            let text = value.text();
            if text.contains([' ', '"', '=', '\\']) {
                write!(f, " {field}=\"{}\"", text.replace('"', "\\\""))?;
            } else if !text.is_empty() {
                write!(f, " {field}={text}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c13_whatever_a_name_has_a_line_of_the_log_stays_one_and_is_read_back() {
        let shown = |name: &[u8]| Line("lost", &[("lock", &name), ("fence", &7)]).to_string();
        for (name, expected) in [
            (&b"stock:17"[..], "stock:17"),
            (b"nobody's", "nobody's"),
            ("größe".as_bytes(), "größe"),
            (b"a b", "\"a b\""),
            (b"a=b", "\"a=b\""),
            (b"a\nlost", "\"a\\nlost\""),
            (b"\"\\\" fence=9", "\"\\\"\\\\\\\" fence=9\""),
            (b"\xff\x1b", "\"\\xff\\u{1b}\""),
        ] {
            assert_eq!(shown(name), format!("lost lock={expected} fence=7"));
        }
        assert_eq!(Line("lost", &[("why", &"")]).to_string(), "lost");
    }
}
