//! The time for which a candidate leads.

use std::sync::Arc;
use std::time::Duration;

use super::boundary::{self, leasehold_error};
use super::bytes::millis;
use super::events::{LEASEHOLD_LOSS_NONE, LEASEHOLD_LOSS_NOT_RENEWED, loss};
use super::failure::leasehold_status;
use super::table;
use crate::{Term, TermEnd};

/// The time for which a candidate leads: in the hands of its work, or from
/// leasehold_election_stand_within(). Free the latter with leasehold_term_free().
///
/// A term ends before its lease does: when only as much validity is left as the work needs to stop
/// (leasehold_election_set_grace_ms()). It does not begin again, even if the lease could be renewed
/// after all. The lock stays held until the work has returned or the term was resigned, so no other
/// candidate is elected while the work still stops, unless validity ends before.
pub struct leasehold_term {
    term: Arc<Term>,
    /// It is the program's to end, and not that of a call that is running.
    is_owned: bool,
}

impl table::Handled for leasehold_term {}

/// The term lasts.
pub const LEASEHOLD_TERM_LASTS: i32 = 0;
/// The candidate resigned, or its election was stopped or freed.
pub const LEASEHOLD_TERM_RESIGNED: i32 = 1;
/// The lease could not be renewed, and only what the work needs to stop in is left.
pub const LEASEHOLD_TERM_AT_RISK: i32 = 2;
/// The lease was lost: leasehold_term_loss() says how. LEASEHOLD_LOSS_EXPIRED is also the end of a
/// client that was closed.
pub const LEASEHOLD_TERM_LOST: i32 = 3;

impl leasehold_term {
    pub(super) fn owned(term: Term) -> leasehold_term {
        leasehold_term { term: Arc::new(term), is_owned: true }
    }

    pub(super) fn lent(term: Arc<Term>) -> leasehold_term {
        leasehold_term { term, is_owned: false }
    }
}

/// One of LEASEHOLD_TERM_... and of LEASEHOLD_LOSS_...
pub(super) fn reasons(end: Option<TermEnd>) -> (i32, i32) {
    match end {
        None => (LEASEHOLD_TERM_LASTS, LEASEHOLD_LOSS_NONE),
        Some(TermEnd::Resigned) => (LEASEHOLD_TERM_RESIGNED, LEASEHOLD_LOSS_NONE),
        Some(TermEnd::AtRisk) => (LEASEHOLD_TERM_AT_RISK, LEASEHOLD_LOSS_NONE),
        Some(TermEnd::Lost(reason)) => (LEASEHOLD_TERM_LOST, loss(reason)),
    }
}

/// The fencing token (fence) of this term: larger than that of every earlier leader. Send it with each
/// write, and let the resource reject a smaller one. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_term_fence(term: *const leasehold_term) -> u64 {
    boundary::get(term, 0, |term| term.term.fence())
}

/// Whether the work may go on. Sends no request. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_term_is_leader(term: *const leasehold_term) -> bool {
    boundary::get(term, false, |term| term.term.is_leader())
}

/// Sleeps for `wait_ms`, and returns whether the work may go on then. If the term ends, it returns
/// false at once. So work that does something at intervals stops when it has to. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_term_leads_after_ms(
    term: *const leasehold_term,
    wait_ms: i64,
) -> bool {
    let wait = Duration::from_millis(u64::try_from(wait_ms).unwrap_or(0));
    boundary::get(term, false, |term| !term.term.ended_within(wait))
}

/// For how many milliseconds no other candidate can be elected, by this lease; 0 once it is over. Sends
/// no request. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_term_remaining_ms(term: *const leasehold_term) -> i64 {
    boundary::get(term, 0, |term| millis(term.term.remaining()))
}

/// Why the term has ended: one of LEASEHOLD_TERM_... More may come. A term that was freed is
/// LEASEHOLD_TERM_LOST, and so is the parent's in a forked child. Sends no request. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_term_end_reason(term: *const leasehold_term) -> i32 {
    boundary::get(term, LEASEHOLD_TERM_LOST, |term| reasons(term.term.end()).0)
}

/// How the lease was lost: one of LEASEHOLD_LOSS_..., LEASEHOLD_LOSS_NONE while
/// leasehold_term_end_reason() is not LEASEHOLD_TERM_LOST. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_term_loss(term: *const leasehold_term) -> i32 {
    boundary::get(term, LEASEHOLD_LOSS_NOT_RENEWED, |term| reasons(term.term.end()).1)
}

/// Ends the term: releases the lock, and waits until the store confirms it. Another candidate is
/// elected then, so call it when the work has stopped. Doing it twice does no harm.
///
/// Returns LEASEHOLD_OK; LEASEHOLD_LOST if another candidate may have led before; others as
/// leasehold_lease_release(). Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_term_resign(
    term: *mut leasehold_term,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::call(error, || Ok(table::get(term)?.term.release()?))
}

/// Frees a term from leasehold_election_stand_within(), and resigns it if nothing has, as
/// leasehold_lease_free() releases a lock. A thread that sleeps in leasehold_term_leads_after_ms()
/// returns. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_term_free(term: *mut leasehold_term) {
    boundary::free(term, |term| {
        if term.is_owned {
            term.term.let_go();
        }
    });
}
