//! A store for the tests of a program, with its controls: what `leasehold::testing` is in Rust.

use std::ffi::c_char;

use super::boundary::{self, leasehold_error};
use super::bytes::{CBytes, bytes, span, text};
use super::failure::{Failure, bad, kind_of, leasehold_status, texts};
use super::table::{self, Handled};
use crate::config::limits::MAX_NAME;
use crate::error::ErrorKind;
use crate::testing::{Busy, Failing, Memory};

/// A store in the memory of this process, for the tests of a program, and the controls of a test: it
/// needs no server, and has a lease lost, a lock busy or a request fail when the test says so. All
/// clients that open its URL, leasehold_testing_memory_url(), exclude each other as on a server. Free
/// it with leasehold_testing_memory_free().
///
/// A control that is called mistakenly, as for the loss of a lock that no client holds, is
/// LEASEHOLD_ERR_BAD_ARGUMENT, and its error lists the locks that are held. Names are those of the
/// store: with the prefix of the client, if it has one.
pub struct leasehold_testing_memory {
    memory: Memory,
    url: CBytes,
}

impl Handled for leasehold_testing_memory {}

/// What goes on in a store for tests until it is freed: a lock that another client holds, or requests
/// that fail. Free it with leasehold_testing_effect_free().
pub struct leasehold_testing_effect {
    _effect: Effect,
}

impl Handled for leasehold_testing_effect {}

enum Effect {
    Busy(#[allow(dead_code, reason = "it ends when it is dropped")] Busy),
    Failing(#[allow(dead_code, reason = "it ends when it is dropped")] Failing),
}

/// The names of the locks that were held when leasehold_testing_memory_held() asked. It does not
/// change any more. Free it with leasehold_testing_names_free().
pub struct leasehold_testing_names {
    names: Vec<CBytes>,
    /// Where there is none.
    nothing: CBytes,
}

impl Handled for leasehold_testing_names {}

/// Makes a store for a test. NULL, with the length 0, makes one that no other test has. A name, of
/// `name_length` bytes or LEASEHOLD_NUL, makes or finds the store of this name in this process: for a
/// program whose URL stands in a file, such as "memory:orders". Any thread. Errors:
/// LEASEHOLD_ERR_BAD_ARGUMENT for a name that is no UTF-8, LEASEHOLD_ERR_STORAGE in a process that was
/// forked from one that has used a store in memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_testing_memory_open(
    name: *const c_char,
    name_length: usize,
    memory: *mut *mut leasehold_testing_memory,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::open(error, "memory", memory, || {
        let memory = match name.is_null() && name_length == 0 {
            true => Memory::fresh(),
            false => Memory::opened(text("name", name, name_length)?),
        }?;
        Ok(leasehold_testing_memory { url: CBytes::new(memory.url()), memory })
    })
}

/// What a program opens, in this process, with leasehold_client_open(). Options may follow, such as
/// "?io_timeout=50ms". Borrowed. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_testing_memory_url(
    memory: *const leasehold_testing_memory,
) -> *const c_char {
    boundary::string(memory, std::ptr::null_mut(), |memory| &memory.url)
}

/// Ends the lease of the holder, as if its ttl had run out. The lock is free, or the first waiter's.
///
/// When this returns, the holder has been told: its lease is invalid, and its event says
/// LEASEHOLD_LOSS_NOT_HELD. A lease that is not renewed learns it when it is extended or released, as
/// on a server; while the store is paused, a holder learns it at its next renewal. Any thread. Errors:
/// LEASEHOLD_ERR_BAD_ARGUMENT if no client holds the lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_testing_memory_lose(
    memory: *mut leasehold_testing_memory,
    name: *const c_char,
    name_length: usize,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::call(error, || {
        let name = bytes("name", name, name_length, MAX_NAME)?;
        Ok(table::get(memory)?.memory.try_lose(name)?)
    })
}

/// Holds the lock as another client would, until `busy` is freed. Then the store hands it to the first
/// waiter. Neither real time nor leasehold_testing_memory_advance_ms() ends it. Any thread. Errors:
/// LEASEHOLD_ERR_BAD_ARGUMENT if a client holds the lock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_testing_memory_busy(
    memory: *mut leasehold_testing_memory,
    name: *const c_char,
    name_length: usize,
    busy: *mut *mut leasehold_testing_effect,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::open(error, "busy", busy, || {
        let name = bytes("name", name, name_length, MAX_NAME)?;
        let busy = table::get(memory)?.memory.try_busy(name)?;
        Ok(leasehold_testing_effect { _effect: Effect::Busy(busy) })
    })
}

/// Fails the next request of a call with this status, as a store would that did not carry it out. With
/// LEASEHOLD_UNKNOWN the store carries it out, and its reply is lost. Renewals and all else that a
/// client does in the background do not count. Called several times, it fails as many requests, in that
/// order.
///
/// A call tries again after an error for which leasehold_status_is_retriable() is true, so one failed
/// request only delays it. To have the call itself fail, use leasehold_testing_memory_failing().
/// leasehold_lock_try_acquire() alone returns LEASEHOLD_ERR_REFUSED and LEASEHOLD_ERR_NOT_REPLICATED
/// at once. Any thread. Errors: LEASEHOLD_ERR_BAD_ARGUMENT for a status that no store gives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_testing_memory_fail_next(
    memory: *mut leasehold_testing_memory,
    status: leasehold_status,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::call(error, || {
        let memory = table::get(memory)?;
        Ok(memory.memory.try_fail_next(kind_to_fail_with(status)?)?)
    })
}

/// Fails every request of a call with this status until `failing` is freed, as
/// leasehold_testing_memory_fail_next() fails one. A call that tries again fails in the end, after
/// io_timeout or its wait. Of several, the last one counts. Any thread. Errors: as there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_testing_memory_failing(
    memory: *mut leasehold_testing_memory,
    status: leasehold_status,
    failing: *mut *mut leasehold_testing_effect,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::open(error, "failing", failing, || {
        let memory = table::get(memory)?;
        let failing = memory.memory.try_failing(kind_to_fail_with(status)?)?;
        Ok(leasehold_testing_effect { _effect: Effect::Failing(failing) })
    })
}

fn kind_to_fail_with(status: leasehold_status) -> Result<ErrorKind, Failure> {
    let none = || {
        let name = texts(status)[0].to_string_lossy();
        bad(format!("no store gives the status {status} ({name})"))
    };
    kind_of(status).ok_or_else(none)
}

/// The store answers nothing, neither calls nor renewals, until leasehold_testing_memory_resume(). A
/// request that is waiting then is answered. One that has given up was not carried out. Leases expire
/// meanwhile. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_testing_memory_pause(
    memory: *mut leasehold_testing_memory,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::call(error, || {
        table::get(memory)?.memory.pause();
        Ok(())
    })
}

/// The store answers again after leasehold_testing_memory_pause(). Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_testing_memory_resume(
    memory: *mut leasehold_testing_memory,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::call(error, || {
        table::get(memory)?.memory.resume();
        Ok(())
    })
}

/// Moves the clock of the store forward. Leases expire there as if so much time had passed without a
/// request, a lock that this frees is handed to its first waiter, and the holders of ended leases have
/// been told when this returns. The clock of the client stays: leasehold_lease_remaining_ms(), the next
/// renewal and the end of a wait count real time. Any thread. Errors: LEASEHOLD_ERR_BAD_ARGUMENT for a
/// negative time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_testing_memory_advance_ms(
    memory: *mut leasehold_testing_memory,
    by_ms: i64,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::call(error, || {
        table::get(memory)?.memory.advance(span("time", by_ms)?);
        Ok(())
    })
}

/// Takes down the names of the locks that are held, also by leasehold_testing_memory_busy(). Any
/// thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_testing_memory_held(
    memory: *mut leasehold_testing_memory,
    names: *mut *mut leasehold_testing_names,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::open(error, "names", names, || {
        let names = table::get(memory)?.memory.held_names().iter().map(CBytes::new).collect();
        Ok(leasehold_testing_names { names, nothing: CBytes::new("") })
    })
}

/// How many locks were held, which is how many names there are. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_testing_names_count(
    names: *const leasehold_testing_names,
) -> usize {
    boundary::get(names, 0, |names| names.names.len())
}

/// The name at a place, from 0 on, in the order of their bytes, and its length, unless `length` is NULL;
/// empty where there is none. Borrowed. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_testing_names_get(
    names: *const leasehold_testing_names,
    place: usize,
    length: *mut usize,
) -> *const c_char {
    boundary::string(names, length, |names| names.names.get(place).unwrap_or(&names.nothing))
}

/// Frees names, and the strings that came from them. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_testing_names_free(names: *mut leasehold_testing_names) {
    boundary::free(names, drop);
}

/// Ends an effect, and frees it: the lock is released, or requests succeed again. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_testing_effect_free(effect: *mut leasehold_testing_effect) {
    boundary::free(effect, drop);
}

/// Frees the controls and resumes the store. Effects stay until they are freed, and what is locked
/// stays locked. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_testing_memory_free(memory: *mut leasehold_testing_memory) {
    boundary::free(memory, drop);
}
