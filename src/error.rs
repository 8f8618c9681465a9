//! What can go wrong, each with a sentence that says what to do.

use std::ffi::CStr;
use std::fmt;

/// Why a call failed. Two everyday results are not errors:
/// [`try_acquire`](crate::Lock::try_acquire) returns `None` when another holder has the lock, and a
/// wait that ran out has the kind [`Timeout`](ErrorKind::Timeout).
///
/// ```
/// use leasehold::{Client, ErrorKind};
///
/// let error = Client::open("redis://127.0.0.1:6379?colour=red").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::BadArgument);
/// assert!(error.to_string().contains("colour"));
/// assert!(!error.is_retriable());
/// ```
#[derive(Clone)]
pub struct Error {
    kind: ErrorKind,
    detail: String,
    /// The particulars say themselves what to do: what the kind would advise is left out.
    is_mended: bool,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $code:literal $retriable:ident $what:literal $advice:literal;)*) => {
        /// The kinds of [`Error`]. More may come; match with a `_` arm. `docs/reference/errors.md` has a
        /// heading for each, with what to do.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum ErrorKind { $($(#[$doc])* $kind,)* }

        impl ErrorKind {
            /// Every kind, in the order of the documentation.
            pub const ALL: &'static [ErrorKind] = &[$(ErrorKind::$kind,)*];

            /// Whether the same call may succeed later although you change nothing.
            pub fn is_retriable(self) -> bool {
                match self { $(ErrorKind::$kind => kinds!(@ $retriable),)* }
            }

            /// The code, what it is, and what to do about it.
            pub(crate) fn c_texts(self) -> [&'static CStr; 3] {
                match self { $(ErrorKind::$kind => [$code, $what, $advice],)* }
            }
        }
    };
    (@ retry) => { true };
    (@ stop) => { false };
}

kinds! {
    /// The wait ran out while another holder had the lock.
    Timeout c"timeout" retry c"the lock was held for the whole wait"
        c"try again, wait longer, or do without";
    /// The caller's check ended the wait.
    Interrupted c"interrupted" retry c"the wait was interrupted"
        c"you hold nothing; stop, or acquire again";
    /// The lease was no longer yours: it expired, was deleted, or another holder has the lock now.
    Lost c"lost" stop c"the lease was lost"
        c"stop using the resource; the fence keeps a late write out";
    /// The store did not confirm the outcome. Leasehold assumes that you do not hold the lock.
    Unknown c"unknown" retry c"the outcome is unknown"
        c"if the lock was acquired after all, it is released in the background and free within one ttl; a lease is as valid as it says";
    /// This thread holds the lock already and would wait for itself.
    WouldDeadlock c"would_deadlock" stop c"this thread holds the lock and would wait for itself for ever"
        c"release its lease first, or wait with a limit";
    /// The client was closed.
    Closed c"closed" stop c"the client is closed"
        c"open a new one";
    /// The client, lock or lease was made before this process was forked.
    Forked c"forked" stop c"this belongs to the process that this one was forked from"
        c"acquire the lock again in this process, with a client that was opened here or that reopens after a fork";
    /// An argument that can never work.
    BadArgument c"bad_argument" stop c"bad argument"
        c"";
    /// The store cannot be reached.
    Refused c"refused" retry c"the store cannot be reached"
        c"check that it runs and that host, port or path are right";
    /// The store did not answer in time. No request for the lock had reached it.
    NoAnswer c"no_answer" retry c"the store did not answer in time"
        c"check the store and the network, or raise io_timeout";
    /// The store did not accept the user or the password.
    Auth c"auth" stop c"the store refused the user or the password"
        c"correct the credentials in the URL";
    /// The two ends do not trust each other's certificates, or speak no common TLS.
    Tls c"tls" stop c"the TLS connection could not be made"
        c"check ca, cert, key and the host name in the URL";
    /// The store forbids a command, a key or a table that a lock needs, or the file is another user's.
    Permission c"permission" stop c"the store forbids what is needed"
        c"grant the user that command, key, table or file (docs/operate/rights.md lists what is needed)";
    /// Something other than Leasehold uses the name: a key of another type, or one without a TTL.
    WrongType c"wrong_type" stop c"the name is in use by something that is not a lease"
        c"choose another name or prefix, or remove the key";
    /// The server is a replica or read-only.
    ReadOnly c"read_only" stop c"the store is read-only"
        c"name a store that can be written to";
    /// The server has no memory left for a new lock.
    OutOfMemory c"out_of_memory" retry c"the store is out of memory"
        c"raise maxmemory; leases that are held can still be renewed and released";
    /// The disk that the store writes to is full, or a quota there is used up.
    DiskFull c"disk_full" retry c"the store has no room left to write to"
        c"make room there, and the same call succeeds";
    /// The server is up and cannot serve now: loading, busy with a script, failing over.
    Unavailable c"unavailable" retry c"the store cannot serve at the moment"
        c"try again shortly";
    /// Fewer replicas than the URL asks for acknowledged the grant in time.
    NotReplicated c"not_replicated" retry c"too few replicas acknowledged the grant"
        c"the lock was released; check the replicas, or lower replicas=";
    /// A quorum's majority did not answer, or did not grant in time.
    NoQuorum c"no_quorum" retry c"too few servers of the quorum agreed"
        c"you hold nothing; start the servers again, or check the network";
    /// This process has run out of connections, descriptors or memory.
    Exhausted c"exhausted" retry c"something this process needs has run out"
        c"raise the pool size or the limit, or hold fewer at once";
    /// The file of an embedded store, or the tables of a database, cannot be used.
    Storage c"storage" stop c"the store's file or tables cannot be used"
        c"make them, or choose others; what is there was left as it was";
    /// Leasehold does not understand the reply of the server.
    Protocol c"protocol" stop c"the store answered something unexpected"
        c"check that the URL leads to a Redis 6.2 or later, a Valkey, a PostgreSQL 12, a MySQL 8.0, a MariaDB 10.6, a ZooKeeper 3.6 or an etcd 3.4 or later";
}

/// Makes a name, or other bytes, safe to print. Text stays as it is. Control characters, characters
/// that reorder text, and bytes that are not text become escapes.
///
/// ```
/// assert_eq!(leasehold::command::plain(b"gr\xc3\xb6\xc3\x9fe\x1b[2J\xff"), "größe\\u{1b}[2J\\xff");
/// ```
pub fn plain(text: impl AsRef<[u8]>) -> String {
    let text = text.as_ref();
    let mut plain = String::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        chunk.valid().chars().for_each(|letter| match letter {
            '\\' => plain.push_str("\\\\"),
            _ => push_shown(letter, &mut plain),
        });
        plain.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    plain
}

/// As [`plain`], of a sentence that may hold what is plain already.
fn harmless(said: String) -> String {
    if said.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return said;
    }
    let mut harmless = String::with_capacity(said.len());
    said.chars().for_each(|letter| push_shown(letter, &mut harmless));
    harmless
}

fn push_shown(letter: char, text: &mut String) {
    match letter {
        '\'' | '"' | '\\' => text.push(letter),
        _ => text.extend(letter.escape_debug()),
    }
}

fn joined(detail: &str, more: &str) -> String {
    let comma = if detail.is_empty() || more.is_empty() { "" } else { ", " };
    format!("{detail}{comma}{more}")
}

impl ErrorKind {
    /// A short, stable name for logs and other languages.
    pub fn code(self) -> &'static str {
        self.texts()[0]
    }

    /// What to do about it. Empty where the detail of each error says it: for
    /// [`BadArgument`](ErrorKind::BadArgument).
    pub fn advice(self) -> &'static str {
        self.texts()[2]
    }

    /// The store is there, and says that it cannot do it now.
    pub(crate) fn is_not_now(self) -> bool {
        matches!(self, ErrorKind::Unavailable | ErrorKind::DiskFull)
    }

    fn texts(self) -> [&'static str; 3] {
        self.c_texts().map(|text| text.to_str().unwrap_or_default())
    }
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, detail: impl Into<String>) -> Error {
        // Much of it is what a server said, and ends on a terminal.
        Error { kind, detail: harmless(detail.into()), is_mended: false }
    }

    /// One whose particulars end with what to do, which is known better than from the kind alone.
    pub(crate) fn mended(kind: ErrorKind, detail: impl Into<String>) -> Error {
        Error { is_mended: true, ..Error::new(kind, detail) }
    }

    pub(crate) fn bare(kind: ErrorKind) -> Error {
        Error::new(kind, String::new())
    }

    /// The same with the name of the lock, where the failure is that lock's.
    pub(crate) fn about(mut self, name: &[u8]) -> Error {
        use ErrorKind::*;
        if !matches!(
            self.kind,
            BadArgument | Auth | Tls | Closed | Forked | Storage | Exhausted | DiskFull
        ) {
            self.detail = joined(&format!("'{}'", plain(name)), &self.detail);
        }
        self
    }

    /// The same with where it happened, in front of the particulars.
    pub(crate) fn at(mut self, place: impl fmt::Display) -> Error {
        let colon = if self.detail.is_empty() { "" } else { ": " };
        self.detail = harmless(format!("{place}{colon}{}", self.detail));
        self
    }

    /// The same with the bound that was not met, in front of the other particulars.
    pub(crate) fn bounded(mut self, bound: &str) -> Error {
        self.detail = joined(bound, &self.detail);
        self
    }

    /// The kind of failure. Match on this.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether the same call may succeed later although you change nothing.
    pub fn is_retriable(&self) -> bool {
        self.kind.is_retriable()
    }

    /// Whether the detail says what to do, so that the advice of the kind is left out.
    pub(crate) fn is_mended(&self) -> bool {
        self.is_mended
    }

    /// The detail of this failure, without the sentences of its kind. It may be empty.
    pub fn detail(&self) -> &str {
        &self.detail
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [_, what, advice] = self.kind.texts();
        let colon = if self.detail.is_empty() { "" } else { ": " };
        write!(f, "{what}{colon}{}", self.detail)?;
        if self.is_mended() || advice.is_empty() { Ok(()) } else { write!(f, "; {advice}") }
    }
}

/// The whole sentence and the kind, because this is what a `main` that returns an error prints.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({:?})", self.kind)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn c13_a_name_in_a_sentence_is_text_that_no_terminal_obeys() {
        let error = Error::bare(ErrorKind::Lost).about("größe \x1b[2J".as_bytes());
        assert_eq!(error.detail(), "'größe \\u{1b}[2J'");
        let error = Error::new(ErrorKind::WrongType, "it has no ttl").about(b"a'\n\xff\0");
        assert_eq!(error.detail(), "'a'\\n\\xff\\0', it has no ttl");
        let error = Error::new(ErrorKind::Refused, "host:1").about(b"a");
        assert_eq!(error.detail(), "'a', host:1");
        let error = Error::new(ErrorKind::WrongType, "ERR \x1b]0;x\x07 'ö' C:\\a");
        assert_eq!(error.detail(), "ERR \\u{1b}]0;x\\u{7} 'ö' C:\\a", "a server's words too");
        let error = Error::new(ErrorKind::Auth, "bob").about(b"a");
        assert_eq!(error.detail(), "bob", "the same for every lock");
    }

    #[test]
    fn c13_an_error_that_says_itself_what_to_do_says_nothing_else() {
        let error = Error::mended(ErrorKind::Protocol, "this is an etcd: write etcd://");
        let said = error.at("h:1").about(b"a").to_string();
        assert_eq!(
            said,
            "the store answered something unexpected: 'a', h:1: this is an etcd: write etcd://"
        );
    }

    #[test]
    fn c13_every_kind_has_its_own_code_and_says_what_to_do() {
        let codes: HashSet<_> = ErrorKind::ALL.iter().map(|kind| kind.code()).collect();
        assert_eq!(codes.len(), ErrorKind::ALL.len());
        for kind in ErrorKind::ALL {
            let said = Error::new(*kind, "detail").to_string();
            assert!(said.contains("detail") && said.ends_with(kind.advice()), "{said}");
            let [code, what, advice] = kind.c_texts().map(|text| text.to_str().unwrap());
            assert!(!code.is_empty() && !what.is_empty(), "{said}");
            assert_eq!(advice, kind.advice());
            assert_eq!(kind.advice().is_empty(), *kind == ErrorKind::BadArgument, "{said}");
        }
    }
}
