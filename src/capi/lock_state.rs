//! Who has a lock.

use std::ffi::c_char;
use std::time::{Duration, UNIX_EPOCH};

use super::bytes::{CBytes, millis};
use super::{boundary, table};
use crate::{ClientInfo, Holder, LockState};

/// What is known of the holder of a lock or of a process that waits for it: one of
/// LEASEHOLD_FACT_...
pub type leasehold_fact = i32;
/// A sentence: "web-3 (python worker.py, pid 4711, label billing) since 12 s".
pub const LEASEHOLD_FACT_WHO: leasehold_fact = 0;
/// The first digits of its token.
pub const LEASEHOLD_FACT_TOKEN_PREFIX: leasehold_fact = 1;
/// For how many milliseconds it has had the lock, or waited, by the store's clock.
pub const LEASEHOLD_FACT_SINCE_MS: leasehold_fact = 2;
/// The client: 12 hex digits, another number in each process.
pub const LEASEHOLD_FACT_CLIENT: leasehold_fact = 3;
/// The machine's name.
pub const LEASEHOLD_FACT_HOST: leasehold_fact = 4;
/// The process.
pub const LEASEHOLD_FACT_PID: leasehold_fact = 5;
/// What runs there.
pub const LEASEHOLD_FACT_PROGRAM: leasehold_fact = 6;
/// What that is written in.
pub const LEASEHOLD_FACT_LANGUAGE: leasehold_fact = 7;
/// The version of this library there.
pub const LEASEHOLD_FACT_VERSION: leasehold_fact = 8;
/// What leasehold_config_set_label() has set there.
pub const LEASEHOLD_FACT_LABEL: leasehold_fact = 9;
/// When the client was opened, in milliseconds since 1970 by its machine's clock.
pub const LEASEHOLD_FACT_STARTED_MS: leasehold_fact = 10;
/// When the command began that `leasehold run --once-per` has run there, in milliseconds since 1970 by
/// its machine's clock. The lock stays taken after it.
pub const LEASEHOLD_FACT_RUN_BEGAN_MS: leasehold_fact = 11;
/// When it ended; empty while it runs, and where its machine died meanwhile.
pub const LEASEHOLD_FACT_RUN_ENDED_MS: leasehold_fact = 12;
/// What it ended with: 128 + n where signal n ended it.
pub const LEASEHOLD_FACT_RUN_EXIT_STATUS: leasehold_fact = 13;
/// How many facts this version has: one more than the last.
pub const LEASEHOLD_FACTS: leasehold_fact = 14;

/// Who had a lock when leasehold_lock_inspect() asked. It does not change any more. Free it with
/// leasehold_lock_state_free().
pub struct leasehold_lock_state {
    state: LockState,
    /// Of the holder, then of each waiter.
    facts: Vec<Vec<(leasehold_fact, CBytes)>>,
    /// What is not known.
    nothing: CBytes,
}

impl table::Handled for leasehold_lock_state {}

impl leasehold_lock_state {
    pub(super) fn new(state: LockState) -> leasehold_lock_state {
        let held = state.holder.as_ref().map_or_else(Vec::new, |one| {
            facts(one.to_string(), &one.token_prefix, one.held, one.client.as_ref())
        });
        let waiting = state
            .waiters
            .iter()
            .map(|one| facts(one.to_string(), &one.token_prefix, one.waited, one.client.as_ref()));
        let facts = std::iter::once(held).chain(waiting).collect();
        leasehold_lock_state { facts, nothing: CBytes::new(""), state }
    }

    fn fact(&self, place: usize, fact: leasehold_fact) -> &CBytes {
        let known = self.facts.get(place).into_iter().flatten();
        let mut known = known.filter(|(known, _)| *known == fact);
        known.next().map_or(&self.nothing, |(_, text)| text)
    }

    fn holder(&self) -> Option<&Holder> {
        self.state.holder.as_ref()
    }
}

/// What is known of one of them.
fn facts(
    who: String,
    token_prefix: &str,
    since: Option<Duration>,
    client: Option<&ClientInfo>,
) -> Vec<(leasehold_fact, CBytes)> {
    let mut facts = Vec::with_capacity(LEASEHOLD_FACTS as usize);
    facts.push((LEASEHOLD_FACT_WHO, CBytes::new(who)));
    facts.push((LEASEHOLD_FACT_TOKEN_PREFIX, CBytes::new(token_prefix)));
    let span = |span: Duration| CBytes::new(millis(span).to_string());
    facts.extend(since.map(|since| (LEASEHOLD_FACT_SINCE_MS, span(since))));
    if let Some(client) = client {
        let run = client.run;
        let moments = [
            (LEASEHOLD_FACT_STARTED_MS, client.started),
            (LEASEHOLD_FACT_RUN_BEGAN_MS, run.map(|run| run.began)),
            (LEASEHOLD_FACT_RUN_ENDED_MS, run.and_then(|run| run.ended)),
        ];
        facts.extend(
            moments
                .into_iter()
                .filter_map(|(fact, at)| Some((fact, span(at?.duration_since(UNIX_EPOCH).ok()?)))),
        );
        let status = run.and_then(|run| run.exit_status);
        facts.extend(
            status.map(|status| (LEASEHOLD_FACT_RUN_EXIT_STATUS, CBytes::new(status.to_string()))),
        );
        facts.extend([
            (LEASEHOLD_FACT_CLIENT, CBytes::new(&client.id)),
            (LEASEHOLD_FACT_HOST, CBytes::new(&client.host)),
            (LEASEHOLD_FACT_PID, CBytes::new(client.pid.to_string())),
            (LEASEHOLD_FACT_PROGRAM, CBytes::new(&client.program)),
            (LEASEHOLD_FACT_LANGUAGE, CBytes::new(&client.language)),
            (LEASEHOLD_FACT_VERSION, CBytes::new(&client.version)),
            (LEASEHOLD_FACT_LABEL, CBytes::new(client.label.as_deref().unwrap_or_default())),
        ]);
    }
    facts
}

/// Whether the lock was held. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_state_is_held(state: *const leasehold_lock_state) -> bool {
    boundary::get(state, false, |state| state.holder().is_some())
}

/// The first digits of the holder's token: enough to tell holders apart, too few to release with.
/// Empty when the lock was free, and where the key holds no token: it is an application's own key, or
/// another library's lock. Borrowed. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_state_token_prefix(
    state: *const leasehold_lock_state,
) -> *const c_char {
    boundary::string(state, std::ptr::null_mut(), |state| {
        state.fact(0, LEASEHOLD_FACT_TOKEN_PREFIX)
    })
}

/// In how many milliseconds the lock would be free if not renewed; 0 when it was free. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_state_ttl_ms(state: *const leasehold_lock_state) -> i64 {
    boundary::get(state, 0, |state| state.holder().map_or(0, |holder| millis(holder.ttl)))
}

/// The holder's fence; 0 when the lock was free, or is held without a fence. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_state_fence(state: *const leasehold_lock_state) -> u64 {
    boundary::get(state, 0, |state| state.holder().and_then(|holder| holder.fence).unwrap_or(0))
}

/// The last fence that was given out; 0 where the store does not know it any more. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_state_last_fence(
    state: *const leasehold_lock_state,
) -> u64 {
    boundary::get(state, 0, |state| state.state.last_fence.unwrap_or(0))
}

/// How many processes waited in the store's queue, 100 at most: each has a place there, from 1 on. Who
/// asks again and again stands in no queue. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_state_waiters(state: *const leasehold_lock_state) -> usize {
    boundary::get(state, 0, |state| state.state.waiters.len())
}

/// How many more waited than those. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_state_more_waiters(
    state: *const leasehold_lock_state,
) -> u64 {
    boundary::get(state, 0, |state| state.state.more_waiters)
}

/// What is known of who waits at a place, or, at the place 0, of the holder: text, in which nothing
/// is that a terminal obeys, or decimal digits. Empty where it is not known. Other programs say it of
/// themselves: it proves nothing. Borrowed. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_state_fact(
    state: *const leasehold_lock_state,
    place: usize,
    fact: leasehold_fact,
) -> *const c_char {
    boundary::string(state, std::ptr::null_mut(), |state| state.fact(place, fact))
}

/// Frees a lock state and its strings. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_state_free(state: *mut leasehold_lock_state) {
    boundary::free(state, drop);
}
