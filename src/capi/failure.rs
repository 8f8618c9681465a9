//! What a call says (0, an outcome or an error), and why it failed.

use std::borrow::Cow;
use std::ffi::CStr;

use crate::error::{Error, ErrorKind};

/// What a call came to: LEASEHOLD_OK, an outcome above 0, or an error below 0. More of both may
/// come: treat what you do not know by its sign.
pub type leasehold_status = i32;

/// Done.
pub const LEASEHOLD_OK: leasehold_status = 0;

/// Outcome: another holder has the lock.
pub const LEASEHOLD_BUSY: leasehold_status = 1;
/// Outcome: the wait ran out.
pub const LEASEHOLD_TIMEOUT: leasehold_status = 2;
/// Outcome: the caller's interrupt function ended the wait. You hold nothing.
pub const LEASEHOLD_INTERRUPTED: leasehold_status = 3;
/// Outcome: the lease was over. A call ended it before, it expired, it was deleted, or another
/// holder has the lock now.
pub const LEASEHOLD_LOST: leasehold_status = 4;
/// Outcome: the store did not confirm the request. Leasehold assumes that you do not hold the lock,
/// and releases it in the background in case you do. A lease that you had before is as valid as it
/// says.
pub const LEASEHOLD_UNKNOWN: leasehold_status = 5;

/// An argument that can never work: a bad name, option or URL, or NULL for an output.
pub const LEASEHOLD_ERR_BAD_ARGUMENT: leasehold_status = -1;
/// A handle that is NULL, freed, of another type, or not from this library.
pub const LEASEHOLD_ERR_HANDLE: leasehold_status = -2;
/// The client is closed, or the handle was freed while the call was waiting.
pub const LEASEHOLD_ERR_CLOSED: leasehold_status = -3;
/// The handle was made before this process was forked: see leasehold_client_reopen_after_fork().
pub const LEASEHOLD_ERR_FORKED: leasehold_status = -4;
/// A client was opened with this configuration, so it can no longer change.
pub const LEASEHOLD_ERR_SEALED: leasehold_status = -5;
/// A defect of this library: the call was abandoned. The handles stay usable.
pub const LEASEHOLD_ERR_PANIC: leasehold_status = -6;
/// This thread holds the lock and would wait for itself for ever.
pub const LEASEHOLD_ERR_WOULD_DEADLOCK: leasehold_status = -7;
/// The store cannot be reached.
pub const LEASEHOLD_ERR_REFUSED: leasehold_status = -8;
/// The store did not answer in time. No request for the lock had reached it.
pub const LEASEHOLD_ERR_NO_ANSWER: leasehold_status = -9;
/// The store did not accept the user or the password.
pub const LEASEHOLD_ERR_AUTH: leasehold_status = -10;
/// The TLS connection could not be made.
pub const LEASEHOLD_ERR_TLS: leasehold_status = -11;
/// The store forbids a command or a key that a lock needs.
pub const LEASEHOLD_ERR_PERMISSION: leasehold_status = -12;
/// The name is in use by something that is not a lease.
pub const LEASEHOLD_ERR_WRONG_TYPE: leasehold_status = -13;
/// The store is read-only.
pub const LEASEHOLD_ERR_READ_ONLY: leasehold_status = -14;
/// The store is out of memory.
pub const LEASEHOLD_ERR_OUT_OF_MEMORY: leasehold_status = -15;
/// The store is up and cannot serve at the moment: loading, busy, failing over.
pub const LEASEHOLD_ERR_UNAVAILABLE: leasehold_status = -16;
/// This process has run out of connections, descriptors or threads.
pub const LEASEHOLD_ERR_EXHAUSTED: leasehold_status = -17;
/// The file of an embedded store cannot be used.
pub const LEASEHOLD_ERR_STORAGE: leasehold_status = -18;
/// The store answered something that this library does not understand.
pub const LEASEHOLD_ERR_PROTOCOL: leasehold_status = -19;
/// Too few replicas acknowledged the grant. The lock was released.
pub const LEASEHOLD_ERR_NOT_REPLICATED: leasehold_status = -20;
/// Too few servers of the quorum answered. You hold nothing.
pub const LEASEHOLD_ERR_NO_QUORUM: leasehold_status = -21;
/// The disk that the store writes to is full, or a quota there is used up.
pub const LEASEHOLD_ERR_DISK_FULL: leasehold_status = -22;

/// The status that tells C of an error of this kind.
fn of(kind: ErrorKind) -> leasehold_status {
    match kind {
        ErrorKind::Timeout => LEASEHOLD_TIMEOUT,
        ErrorKind::Interrupted => LEASEHOLD_INTERRUPTED,
        ErrorKind::Lost => LEASEHOLD_LOST,
        ErrorKind::Unknown => LEASEHOLD_UNKNOWN,
        ErrorKind::WouldDeadlock => LEASEHOLD_ERR_WOULD_DEADLOCK,
        ErrorKind::Closed => LEASEHOLD_ERR_CLOSED,
        ErrorKind::Forked => LEASEHOLD_ERR_FORKED,
        ErrorKind::BadArgument => LEASEHOLD_ERR_BAD_ARGUMENT,
        ErrorKind::Refused => LEASEHOLD_ERR_REFUSED,
        ErrorKind::NoAnswer => LEASEHOLD_ERR_NO_ANSWER,
        ErrorKind::Auth => LEASEHOLD_ERR_AUTH,
        ErrorKind::Tls => LEASEHOLD_ERR_TLS,
        ErrorKind::Permission => LEASEHOLD_ERR_PERMISSION,
        ErrorKind::WrongType => LEASEHOLD_ERR_WRONG_TYPE,
        ErrorKind::ReadOnly => LEASEHOLD_ERR_READ_ONLY,
        ErrorKind::OutOfMemory => LEASEHOLD_ERR_OUT_OF_MEMORY,
        ErrorKind::DiskFull => LEASEHOLD_ERR_DISK_FULL,
        ErrorKind::Unavailable => LEASEHOLD_ERR_UNAVAILABLE,
        ErrorKind::NotReplicated => LEASEHOLD_ERR_NOT_REPLICATED,
        ErrorKind::NoQuorum => LEASEHOLD_ERR_NO_QUORUM,
        ErrorKind::Exhausted => LEASEHOLD_ERR_EXHAUSTED,
        ErrorKind::Storage => LEASEHOLD_ERR_STORAGE,
        ErrorKind::Protocol => LEASEHOLD_ERR_PROTOCOL,
    }
}

/// The kind of error that C is told of by this status.
pub(super) fn kind_of(status: leasehold_status) -> Option<ErrorKind> {
    ErrorKind::ALL.iter().copied().find(|kind| of(*kind) == status)
}

/// The kind that a status has its texts from. For Closed C has its own: in Rust only clients can be.
fn kind(status: leasehold_status) -> Option<ErrorKind> {
    kind_of(status).filter(|kind| *kind != ErrorKind::Closed)
}

pub(super) fn is_retriable(status: leasehold_status) -> bool {
    status == LEASEHOLD_BUSY || kind(status).is_some_and(ErrorKind::is_retriable)
}

/// The name of a status, what it means and what to do about it.
pub(super) fn texts(status: leasehold_status) -> [&'static CStr; 3] {
    if let Some(kind) = kind(status) {
        return kind.c_texts();
    }
    match status {
        LEASEHOLD_OK => [c"ok", c"done", c"nothing is to be done"],
        LEASEHOLD_BUSY => [
            c"busy",
            c"another holder has the lock",
            c"try again later, wait for it, or do without",
        ],
        LEASEHOLD_ERR_CLOSED => {
            [c"closed", c"what the call was using is closed", c"open a new one, or stop"]
        }
        LEASEHOLD_ERR_HANDLE => [
            c"handle",
            c"a handle is wrong",
            c"look for a use after free, or for an earlier status that was not checked",
        ],
        LEASEHOLD_ERR_SEALED => [
            c"sealed",
            c"a client has been opened with this configuration",
            c"make another configuration, and open another client with it",
        ],
        LEASEHOLD_ERR_PANIC => [
            c"panic",
            c"the library met a defect of its own and abandoned the call",
            c"report it, please, with the place that the log callback was told",
        ],
        _ => [c"unlisted", c"no status that this library knows", c"treat it by its sign"],
    }
}

/// Why a call has nothing to hand out: an error, or an outcome above 0.
#[derive(Clone)]
pub(super) struct Failure {
    pub(super) status: leasehold_status,
    /// What is special about it; may be empty.
    pub(super) detail: String,
    /// The detail says what to do, so that the advice of the status is left out.
    is_mended: bool,
}

impl Failure {
    pub(super) fn new(status: leasehold_status, detail: impl Into<String>) -> Failure {
        Failure { status, detail: detail.into(), is_mended: false }
    }

    /// What went wrong and what to do about it.
    pub(super) fn message(&self) -> String {
        let [_, what, advice] = texts(self.status).map(CStr::to_string_lossy);
        let colon = if self.detail.is_empty() { "" } else { ": " };
        let advice = if self.is_mended { Cow::default() } else { advice };
        let semicolon = if advice.is_empty() { "" } else { "; " };
        format!("{what}{colon}{}{semicolon}{advice}", self.detail)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let detail = match (error.kind(), error.detail()) {
            (ErrorKind::Closed, "") => "the client is closed",
            (_, detail) => detail,
        };
        let is_mended = error.is_mended();
        Failure { is_mended, ..Failure::new(of(error.kind()), detail) }
    }
}

pub(super) fn bad(detail: impl Into<String>) -> Failure {
    Failure::new(LEASEHOLD_ERR_BAD_ARGUMENT, detail)
}

/// Where a test can have the library panic; nothing anywhere else.
#[track_caller]
#[inline(always)]
pub(super) fn panic_point() {
    #[cfg(test)]
    super::tests::panics::inject();
}
