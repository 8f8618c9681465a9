//! What can go wrong, each with a sentence that says what to do.

#[cfg(feature = "capi")]
use std::ffi::CStr;
use std::fmt;

/// Why a call failed. Two everyday results are not errors:
/// [`try_acquire`](crate::Lock::try_acquire) says `None` when somebody else has the lock, and a
/// wait that ran out is the kind [`Timeout`](ErrorKind::Timeout), to be matched on.
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
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    detail: String,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident $code:literal $retriable:ident $what:literal $advice:literal;)*) => {
        /// The kinds of [`Error`]. More may come; match with a `_` arm.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum ErrorKind { $($(#[$doc])* $kind,)* }

        impl ErrorKind {
            /// Every kind, in the order of the documentation.
            pub const ALL: &'static [ErrorKind] = &[$(ErrorKind::$kind,)*];

            /// A short, stable name for logs and other languages.
            pub fn code(self) -> &'static str {
                match self { $(ErrorKind::$kind => $code,)* }
            }

            /// Whether the same call can succeed later without anybody changing anything.
            pub fn is_retriable(self) -> bool {
                match self { $(ErrorKind::$kind => kinds!(@ $retriable),)* }
            }

            fn what(self) -> &'static str {
                match self { $(ErrorKind::$kind => $what,)* }
            }

            /// What to do about it.
            pub fn advice(self) -> &'static str {
                match self { $(ErrorKind::$kind => $advice,)* }
            }

            /// The code, what it is, and what to do about it, for C.
            #[cfg(feature = "capi")]
            pub(crate) fn c_texts(self) -> [&'static CStr; 3] {
                match self {
                    $(ErrorKind::$kind => [
                        c_text(concat!($code, "\0")),
                        c_text(concat!($what, "\0")),
                        c_text(concat!($advice, "\0")),
                    ],)*
                }
            }
        }
    };
    (@ retry) => { true };
    (@ stop) => { false };
}

kinds! {
    /// The wait ran out while somebody else held the lock.
    Timeout "timeout" retry "the lock stayed taken for the whole wait"
        "try again, wait longer, or do without";
    /// The caller's check ended the wait.
    Interrupted "interrupted" retry "the wait was interrupted"
        "nothing is held; stop, or acquire again";
    /// The lease was no longer ours: it ran out, was deleted, or somebody else has the lock now.
    Lost "lost" stop "the lease was lost"
        "stop using the resource; the fence keeps a late write out";
    /// The outcome is not known; it is never counted as held.
    Unknown "unknown" retry "the outcome is unknown"
        "a lock that may have been taken is being given back and is free within one ttl; a lease is as valid as it says";
    /// This thread holds the lock already and would wait for itself.
    WouldDeadlock "would_deadlock" stop "this thread holds the lock and would wait for itself for ever"
        "release its lease first, or wait with a limit";
    /// The client was closed.
    Closed "closed" stop "the client is closed"
        "open a new one";
    /// The client, lock or lease was made before this process was forked.
    Forked "forked" stop "this process is a fork of the one that opened the client"
        "open a new client in the child; the parent's leases stay the parent's";
    /// An argument that can never work.
    BadArgument "bad_argument" stop "bad argument"
        "correct the call or the URL";
    /// The store cannot be reached.
    Refused "refused" retry "the store cannot be reached"
        "check that it runs and that host, port or path are right";
    /// The store did not answer in time; nothing was asked of it yet.
    NoAnswer "no_answer" retry "the store did not answer in time"
        "check the store and the network, or raise io_timeout";
    /// The store did not accept who we say we are.
    Auth "auth" stop "the store refused the user or the password"
        "correct the credentials in the URL";
    /// The two ends do not trust each other's certificates, or speak no common TLS.
    Tls "tls" stop "the TLS connection could not be made"
        "check ca, cert, key and the host name in the URL";
    /// The store forbids a command or a key that a lock needs.
    Permission "permission" stop "the store forbids what is needed"
        "grant the user that command or key (docs/operating.md lists all of them)";
    /// The key belongs to something else than Leasehold: another type, or no TTL.
    WrongType "wrong_type" stop "the name is in use by something that is not a lease"
        "choose another name or prefix, or remove the key";
    /// The server is a replica or read-only.
    ReadOnly "read_only" stop "the store is read-only"
        "connect to the master, or make the file writable";
    /// The server has no memory left for a new lock.
    OutOfMemory "out_of_memory" retry "the store is out of memory"
        "raise maxmemory; leases that are held can still be extended and released";
    /// The server is up and cannot serve now: loading, busy with a script, failing over.
    Unavailable "unavailable" retry "the store cannot serve at the moment"
        "try again shortly";
    /// Fewer replicas than the URL asks for acknowledged the grant in time.
    NotReplicated "not_replicated" retry "too few replicas acknowledged the grant"
        "the lock was given back; check the replicas, or lower replicas=";
    /// A quorum's majority did not answer, or did not grant in time.
    NoQuorum "no_quorum" retry "too few servers of the quorum answered"
        "nothing is held; bring servers back, or check the network";
    /// Something that this process needs has run out: connections, descriptors, memory.
    Exhausted "exhausted" retry "something this process needs has run out"
        "raise the pool size or the limit, or hold fewer at once";
    /// The file of an embedded store cannot be used.
    Storage "storage" stop "the store's file cannot be used"
        "choose another file; this one was left as it was";
    /// The server said something that Leasehold does not understand.
    Protocol "protocol" stop "the store answered something unexpected"
        "check that the URL leads to a Redis 6.2 or later, or a Valkey";
}

/// A name for people: text as it is, without anything that a terminal obeys, and other bytes in hex.
fn plain(name: &[u8]) -> String {
    let mut plain = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        plain.extend(chunk.valid().escape_debug());
        plain.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    plain
}

#[cfg(feature = "capi")]
fn c_text(text: &'static str) -> &'static CStr {
    CStr::from_bytes_with_nul(text.as_bytes()).unwrap_or_default()
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, detail: impl Into<String>) -> Error {
        Error(Box::new(Inner { kind, detail: detail.into() }))
    }

    pub(crate) fn bare(kind: ErrorKind) -> Error {
        Error::new(kind, String::new())
    }

    /// The same with the name of the lock, where the failure is that lock's.
    pub(crate) fn about(mut self, name: &[u8]) -> Error {
        use ErrorKind::*;
        let Inner { kind, detail } = &mut *self.0;
        if matches!(
            kind,
            Timeout | Interrupted | Lost | Unknown | WouldDeadlock | Permission | WrongType
        ) {
            let more = if detail.is_empty() { "" } else { ", " };
            *detail = format!("'{}'{more}{detail}", plain(name));
        }
        self
    }

    /// What kind of failure it is: the thing to match on.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the same call can succeed later without anybody changing anything.
    pub fn is_retriable(&self) -> bool {
        self.0.kind.is_retriable()
    }

    /// The particulars of this failure, without the kind's own sentences; may be empty.
    pub fn detail(&self) -> &str {
        &self.0.detail
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, detail } = &*self.0;
        f.write_str(kind.what())?;
        if !detail.is_empty() {
            write!(f, ": {detail}")?;
        }
        write!(f, "; {}", kind.advice())
    }
}

/// The whole sentence and the kind, because this is what a `main` that returns an error prints.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({:?})", self.0.kind)
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
        assert_eq!(error.detail(), "'a\\'\\n\\xff\\0', it has no ttl");
        let error = Error::new(ErrorKind::Refused, "host:1").about(b"a");
        assert_eq!(error.detail(), "host:1", "not the fault of one lock");
    }

    #[test]
    fn c13_every_kind_has_its_own_code_and_says_what_to_do() {
        let codes: HashSet<_> = ErrorKind::ALL.iter().map(|kind| kind.code()).collect();
        assert_eq!(codes.len(), ErrorKind::ALL.len());
        for kind in ErrorKind::ALL {
            let said = Error::new(*kind, "detail").to_string();
            assert!(said.contains("detail") && said.ends_with(kind.advice()), "{said}");
            #[cfg(feature = "capi")]
            assert_eq!(
                kind.c_texts().map(|text| text.to_str().unwrap()),
                [kind.code(), kind.what(), kind.advice()]
            );
        }
    }
}
