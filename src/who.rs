//! What a client says of itself in its store, so that others see who has a lock; and what they make of
//! it. Every program that may write to the store can have written it.

use std::fmt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, utf8_percent_encode};

use crate::error::plain;

/// More than this of a record is not read.
pub(crate) const LONGEST_RECORD: usize = 2048;
/// Of each text, so many characters are kept.
const LONGEST_TEXT: usize = 100;

/// The client that has a lock or waits for it, as it has said itself: of nothing more is it a proof.
/// All texts can be shown on a terminal: what it would obey is escaped, what is long is cut off.
///
/// ```no_run
/// let client = leasehold::Client::open("redis://127.0.0.1")?;
/// if let Some(holder) = client.lock("nightly").inspect()?.holder {
///     println!("held by {holder}");   // web-3 (python worker.py, pid 4711, label billing) since 12 s
/// }
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ClientInfo {
    /// 12 hex digits: a number of its own in each process.
    pub id: String,
    /// The machine's name.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// What runs there.
    pub program: String,
    /// What that is written in: `rust`, `c`, `c++`, `python`, `java`, or `shell`.
    pub language: String,
    /// The version of this library there.
    pub version: String,
    /// What the program has set by [`Config::label`](crate::Config::label).
    pub label: Option<String>,
    /// When the client was opened, by its machine's clock.
    pub started: Option<SystemTime>,
    /// What it has run under a lock that stays taken for an interval, as `leasehold run --once-per` does.
    pub run: Option<Run>,
}

/// A command that was run under a lock which stays taken for an interval. All times are by the clock of
/// the machine where it ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// When it was started.
    pub began: SystemTime,
    /// When it ended; `None` while it runs, and where its machine or process died meanwhile.
    pub ended: Option<SystemTime>,
    /// What it ended with, as a shell tells it: 128 + n where signal n ended it.
    pub exit_status: Option<u8>,
}

impl fmt::Display for ClientInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ClientInfo { host, language, program, pid, label, .. } = self;
        let host = if host.is_empty() { "a host without a name" } else { host };
        write!(f, "{host} ({language} {program}, pid {pid}")?;
        label.iter().try_for_each(|label| write!(f, ", label {label}"))?;
        f.write_str(")")
    }
}

/// What a program tells of itself, beyond what any process can find out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Introduction {
    pub(crate) label: String,
    pub(crate) language: String,
    /// Empty: that of the command line's first word.
    pub(crate) program: String,
}

impl Default for Introduction {
    fn default() -> Introduction {
        Introduction { label: String::new(), language: "rust".into(), program: String::new() }
    }
}

impl Introduction {
    /// The record of this process. `started` is in milliseconds of the wall clock.
    pub(crate) fn record(&self, started: u64, run: Option<&Run>) -> String {
        /// What stands as it is.
        const PLAIN: &AsciiSet =
            &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'+').remove(b':');
        let host = nix::unistd::gethostname().unwrap_or_default();
        let (host, program) = (host.to_string_lossy(), self.program());
        let (pid, started) = (std::process::id().to_string(), started.to_string());
        let [began, ended, status] = run.map_or_else(Default::default, Run::said);
        let said = [
            ("host", &*host),
            ("pid", &pid),
            ("program", &program),
            ("language", &self.language),
            ("version", env!("CARGO_PKG_VERSION")),
            ("started", &started),
            ("label", &self.label),
            ("began", &began),
            ("ended", &ended),
            ("status", &status),
        ];
        let said = said.iter().filter(|(_, text)| !text.is_empty()).map(|(key, text)| {
            let text: String = text.chars().take(LONGEST_TEXT).collect();
            format!("{key}={}", utf8_percent_encode(&text, PLAIN))
        });
        said.collect::<Vec<_>>().join(" ")
    }

    /// Without arguments, which may hold a password.
    fn program(&self) -> String {
        if !self.program.is_empty() {
            return self.program.clone();
        }
        let word = std::env::args_os().next().unwrap_or_default();
        let name = Path::new(&word).file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

impl ClientInfo {
    /// Reads a record; `None` if it is none.
    pub(crate) fn read(id: String, record: &[u8]) -> Option<ClientInfo> {
        let record = &record[..record.len().min(LONGEST_RECORD)];
        let said = |key: &str| {
            let mut pairs = record.split(|byte| *byte == b' ');
            pairs.find_map(|pair| pair.strip_prefix(key.as_bytes())?.strip_prefix(b"="))
        };
        let text = |key| said(key).map(|text| shown(&percent_decode(text).collect::<Vec<_>>()));
        let number = |key| std::str::from_utf8(said(key)?).ok()?.parse::<u64>().ok();
        let at = |key| UNIX_EPOCH.checked_add(Duration::from_millis(number(key)?));
        let exit_status = number("status").and_then(|status| u8::try_from(status).ok());
        Some(ClientInfo {
            id,
            host: text("host").unwrap_or_default(),
            pid: u32::try_from(number("pid")?).ok()?,
            program: text("program").unwrap_or_default(),
            language: text("language").unwrap_or_default(),
            version: text("version").unwrap_or_default(),
            label: text("label"),
            started: at("started"),
            run: at("began").map(|began| Run { began, ended: at("ended"), exit_status }),
        })
    }
}

impl Run {
    /// When it began and ended, and what with, as the record has them.
    fn said(&self) -> [String; 3] {
        let at = |time: SystemTime| {
            let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
            since.as_millis().to_string()
        };
        let status = self.exit_status.map(|status| status.to_string());
        [at(self.began), self.ended.map(at).unwrap_or_default(), status.unwrap_or_default()]
    }
}

/// A text of another program's, without anything that a terminal obeys, and not too long.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut shown = plain(text.chars().take(LONGEST_TEXT).collect::<String>());
    if text.chars().nth(LONGEST_TEXT).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(record: &[u8]) -> Option<ClientInfo> {
        ClientInfo::read("00112233aabb".into(), record)
    }

    #[test]
    fn a_record_reads_back_whatever_the_texts_are() {
        let introduction = Introduction {
            label: "größe = 50% of \"all\"".into(),
            language: "c++".into(),
            program: "worker 1".into(),
        };
        let record = introduction.record(1_795_182_559_483, None);
        assert!(record.is_ascii() && record.contains(" program=worker%201 language=c++ "));
        let client = read(record.as_bytes()).unwrap();
        assert_eq!(client.pid, std::process::id());
        assert_eq!(client.label.as_deref(), Some("größe = 50% of \"all\""));
        assert_eq!((&*client.program, &*client.language), ("worker 1", "c++"));
        let started = client.started.unwrap().duration_since(UNIX_EPOCH).unwrap();
        assert_eq!(started.as_millis(), 1_795_182_559_483);
        let said = client.to_string();
        assert!(said.contains("(c++ worker 1, pid ") && said.contains(", label größe"), "{said}");
        assert!(!client.host.is_empty() && !client.version.is_empty());
        assert_eq!(client.run, None);
    }

    #[test]
    fn a_run_reads_back_while_it_goes_on_and_after_it_has_ended() {
        let at = |ms| UNIX_EPOCH + Duration::from_millis(ms);
        let under_way = Run { began: at(1_795_182_559_483), ended: None, exit_status: None };
        let over = Run { ended: Some(at(1_795_182_560_001)), exit_status: Some(143), ..under_way };
        for run in [under_way, over] {
            let record = Introduction::default().record(7, Some(&run));
            assert_eq!(read(record.as_bytes()).unwrap().run, Some(run), "{record}");
        }
        let odd = read(b"pid=1 began=5 ended=18446744073709551615 status=256").unwrap().run;
        assert_eq!(odd.unwrap().exit_status, None);
    }

    #[test]
    fn the_program_is_the_first_word_without_its_folder() {
        let record = Introduction::default().record(0, None);
        let client = read(record.as_bytes()).unwrap();
        assert!(client.program.starts_with("leasehold"), "{}", client.program);
        assert_eq!((client.label, &*client.language), (None, "rust"));
    }

    #[test]
    fn what_others_wrote_is_cut_and_escaped() {
        let record = format!("host=%1b%5B2J%E2%80%AE%0a pid=7 label={}", "x".repeat(1000));
        let client = read(record.as_bytes()).unwrap();
        assert_eq!(client.host, "\\u{1b}[2J\\u{202e}\\n");
        assert_eq!(client.label.unwrap(), format!("{}…", "x".repeat(LONGEST_TEXT)));
        for garbage in [
            &b""[..],
            b"host=a",
            b"host=a pid=-1",
            b"host=a pid=4294967296",
            b"host=a pid=99999999999999999999",
            b"\xff\0 = == host",
        ] {
            assert_eq!(read(garbage), None, "{}", garbage.escape_ascii());
        }
        assert_eq!(read(b"pid=7").unwrap().host, "", "a host without a name is left out");
        let late = read(b"host=a pid=1 started=18446744073709551615").unwrap();
        assert!(late.started.is_none_or(|started| started > UNIX_EPOCH));
        let long = [b"host=a pid=1 ".as_slice(), &vec![b'x'; 1 << 20], b" label=b"].concat();
        assert_eq!(read(&long).unwrap().label, None, "no more than its beginning is read");
    }

    proptest! {
        #[test]
        fn no_record_makes_a_text_that_a_terminal_obeys(
            record in proptest::collection::vec(prop_oneof![any::<u8>(), Just(b'%'), Just(b'1')], 0..300),
        ) {
            let record = [b"pid=1 host=".as_slice(), &record].concat();
            if let Some(client) = read(&record) {
                prop_assert!(!client.to_string().contains(char::is_control));
                prop_assert!(client.host.chars().count() <= LONGEST_TEXT * 10 + 1);
            }
        }
    }
}
