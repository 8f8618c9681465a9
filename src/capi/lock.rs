//! A lock: a name, options, and the ways to take it.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::boundary::{self, leasehold_error};
use super::bytes::{CBytes, MAX_TEXT, bytes, limit, span, text};
use super::failure::{
    Failure, LEASEHOLD_BUSY, LEASEHOLD_ERR_CLOSED, LEASEHOLD_LOST, bad, leasehold_status,
};
use super::lease::{leasehold_lease, leasehold_turn};
use super::lock_state::leasehold_lock_state;
use super::settings::Settings;
use super::table::{self, Handled};
use crate::fork::HANDLES;
use crate::sync::Mutex;
use crate::{Acquiring, Backoff, Break, ErrorKind, Lock, WaitMode};

/// A lock that can be acquired: a name and options. It holds nothing itself. Any number of threads
/// may use it at once, and any number of leases can come from it. Free it with
/// leasehold_lock_free().
pub struct leasehold_lock {
    settings: Mutex<Settings<Options>>,
    /// Its leases say it too.
    name: Arc<CBytes>,
    freed: AtomicBool,
}

impl Handled for leasehold_lock {
    fn in_child(&self) -> Option<leasehold_lock> {
        let settings = self.with(|settings| settings.clone());
        settings.accepted.lock.reopens().then(|| leasehold_lock {
            settings: Mutex::new(settings),
            name: Arc::clone(&self.name),
            freed: AtomicBool::new(false),
        })
    }
}

/// How to wait for a lock.
pub type leasehold_wait_mode = i32;
/// Wait in the store's queue, in the order of arrival. If the server forbids what the queue needs
/// (the right to subscribe to a channel), or the store has no queue, poll instead.
pub const LEASEHOLD_WAIT_MODE_AUTO: leasehold_wait_mode = 0;
/// Poll, in no order. For names that are shared with other libraries, whose releases notify no
/// waiter. A thread that spins comes after all that queue for the name.
pub const LEASEHOLD_WAIT_MODE_SPIN: leasehold_wait_mode = 1;

/// Asked on the calling thread, at least every 100 ms while it waits for a lock, with no lock of
/// the library held: other than zero ends the wait. It may call this library. While it runs, the
/// wait goes on for as long as it takes. It must return, not longjmp() or throw.
pub type leasehold_interrupt_fn = Option<unsafe extern "C" fn(user_data: *mut c_void) -> c_int>;

#[derive(Clone)]
struct Options {
    lock: Lock,
    wait_mode: WaitMode,
    attempts: Option<u32>,
    backoff: Option<Backoff>,
}

impl leasehold_lock {
    pub(super) fn new(lock: Lock) -> leasehold_lock {
        let name = Arc::new(CBytes::new(lock.name()));
        let options = Options { lock, wait_mode: WaitMode::Auto, attempts: None, backoff: None };
        let settings = Mutex::new(Settings::new(options));
        leasehold_lock { settings, name, freed: AtomicBool::new(false) }
    }

    /// In a section, so that no child inherits the mutex locked.
    fn with<T>(&self, work: impl FnOnce(&mut Settings<Options>) -> T) -> T {
        let _steady = HANDLES.steady();
        work(&mut self.settings.lock())
    }

    /// The lock, whatever options were refused.
    pub(super) fn plain(&self) -> Lock {
        self.with(|settings| settings.accepted.lock.clone())
    }

    /// The lock with its options as they are now.
    fn read(&self) -> Result<Lock, Failure> {
        let Options { lock, wait_mode, attempts, backoff } =
            self.with(|settings| settings.read())?;
        Ok(lock.wait_mode(match wait_mode {
            WaitMode::Spin(usual) => {
                let backoff = backoff.unwrap_or(usual);
                WaitMode::Spin(attempts.map_or(backoff, |most| backoff.attempts(most)))
            }
            // Refused here and not by a setter: setters may be called in any order.
            _ if attempts.is_some() || backoff.is_some() => {
                return Err(bad("attempts and backoff are for the wait mode 'spin'"));
            }
            other => other,
        }))
    }

    /// The same, to wait as long as `wait_ms` says, or else the option does.
    fn read_to_wait(&self, wait_ms: Option<i64>) -> Result<Lock, Failure> {
        match (self.read()?, wait_ms) {
            (lock, None) => Ok(lock),
            (lock, Some(wait_ms)) => waiting(lock, "wait", wait_ms),
        }
    }

    /// A wait that no thread stands in, with the name for its lease. To poll it opens no store: that
    /// is done here, where a child needs it.
    pub(super) fn acquire_async(
        &self,
        wait_ms: Option<i64>,
    ) -> Result<(Acquiring, Arc<CBytes>), Failure> {
        let lock = self.read_to_wait(wait_ms)?;
        lock.check()?;
        Ok((lock.acquire_async(), Arc::clone(&self.name)))
    }
}

/// Waits as long as `wait_ms` says, or else the option does.
fn acquire(
    handle: *mut leasehold_lock,
    wait_ms: Option<i64>,
    interrupt: leasehold_interrupt_fn,
    user_data: *mut c_void,
) -> Result<leasehold_lease, Failure> {
    let object = table::get(handle)?;
    let lock = object.read_to_wait(wait_ms)?;
    let freed = || object.freed.load(Ordering::Acquire);
    // SAFETY: the header asks for one that may be called so, on this thread, until this call ends.
    let stop = || interrupt.is_some_and(|ask| unsafe { ask(user_data) != 0 });
    match lock.acquire_unless(|| freed() || stop()) {
        Ok(lease) => Ok(leasehold_lease::new(lease, &object.name)),
        Err(error) if error.kind() == ErrorKind::Interrupted && freed() => {
            Err(Failure::new(LEASEHOLD_ERR_CLOSED, "the lock was freed during the call"))
        }
        Err(error) => Err(error.into()),
    }
}

fn set(
    lock: *mut leasehold_lock,
    what: &'static str,
    change: impl FnOnce(&'static str, Options) -> Result<Options, Failure>,
) -> leasehold_status {
    boundary::call(std::ptr::null_mut(), || {
        table::get(lock)?.with(|settings| settings.set(what, change))
    })
}

/// The same for an option that the Rust lock has a setter for.
fn set_lock(
    lock: *mut leasehold_lock,
    what: &'static str,
    change: impl FnOnce(&'static str, Lock) -> Result<Lock, Failure>,
) -> leasehold_status {
    set(lock, what, |what, options| {
        let lock = change(what, options.lock)?;
        lock.check_options()?;
        Ok(Options { lock, ..options })
    })
}

/// Sets how soon the lock is free after its holder died: 30000 ms by default, from 3 ms to 366
/// days, or to what the URL has as max_ttl. It does not end a lease that is renewed. The client
/// renews after each third of the ttl. So it takes a third of the ttl until the client knows that a
/// lease was deleted in the store.
///
/// The setters of a lock return LEASEHOLD_OK, or LEASEHOLD_ERR_BAD_ARGUMENT for a value that the
/// option can never have. leasehold_lock_check() has the reason. Then acquiring the lock fails too,
/// until the option is set well. Options that do not go together are refused when the lock is
/// acquired. Leases that were acquired before stay as they are. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_set_ttl_ms(
    lock: *mut leasehold_lock,
    ttl_ms: i64,
) -> leasehold_status {
    set_lock(lock, "ttl", |what, lock| Ok(lock.ttl(span(what, ttl_ms)?)))
}

/// Sets how long leasehold_lock_acquire() waits: 60000 ms by default; 0 tries once,
/// LEASEHOLD_FOREVER waits without limit. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_set_wait_ms(
    lock: *mut leasehold_lock,
    wait_ms: i64,
) -> leasehold_status {
    set_lock(lock, "wait", |what, lock| waiting(lock, what, wait_ms))
}

fn waiting(lock: Lock, what: &str, wait_ms: i64) -> Result<Lock, Failure> {
    Ok(match limit(what, wait_ms)? {
        Some(wait) => lock.wait(wait),
        None => lock.wait_forever(),
    })
}

/// Sets how long the store may take to answer when this lock is acquired, from 1 ms to 1 h. The
/// default is the client's io_timeout, 1000 ms unless it was set. While the store is silent,
/// leasehold_lock_try_acquire() and shorter waits last that long. With 50, they have an answer
/// after 50 ms, or an error that is not LEASEHOLD_BUSY. Renewals and releases keep the client's
/// io_timeout. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_set_io_timeout_ms(
    lock: *mut leasehold_lock,
    most_ms: i64,
) -> leasehold_status {
    set_lock(lock, "io_timeout", |what, lock| Ok(lock.io_timeout(span(what, most_ms)?)))
}

/// Sets how often a wait that spins asks for the lock at most: 1 is the least, and there is no
/// limit by default. Whichever of this and the time comes first ends the wait. In another mode than
/// LEASEHOLD_WAIT_MODE_SPIN, acquiring the lock is then LEASEHOLD_ERR_BAD_ARGUMENT. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_set_attempts(
    lock: *mut leasehold_lock,
    most: u32,
) -> leasehold_status {
    set(lock, "attempts", |_, options| {
        Backoff::default().attempts(most).check()?;
        Ok(Options { attempts: Some(most), ..options })
    })
}

/// Sets whether the client renews leases in the background. By default it does if the ttl is at
/// least 100 ms. Without renewal a lease expires after its ttl. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_set_renew(
    lock: *mut leasehold_lock,
    renew: bool,
) -> leasehold_status {
    set_lock(lock, "renew", |_, lock| Ok(lock.renew(renew)))
}

/// Sets how long a living holder may keep a renewed lease: 3600000 ms by default;
/// LEASEHOLD_FOREVER sets no limit. LEASEHOLD_EVENT_AT_RISK comes a third of the ttl before, so
/// choose the ttl well below it. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_set_max_hold_ms(
    lock: *mut leasehold_lock,
    most_ms: i64,
) -> leasehold_status {
    set_lock(lock, "max_hold", |what, lock| {
        Ok(match limit(what, most_ms)? {
            Some(most) => lock.max_hold(most),
            None => lock.no_max_hold(),
        })
    })
}

/// Sets how to wait: one of the LEASEHOLD_WAIT_MODE_ constants, LEASEHOLD_WAIT_MODE_AUTO by
/// default; LEASEHOLD_ERR_BAD_ARGUMENT also for a mode that there is not. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_set_wait_mode(
    lock: *mut leasehold_lock,
    mode: leasehold_wait_mode,
) -> leasehold_status {
    set(lock, "wait_mode", |_, options| {
        let wait_mode = match mode {
            LEASEHOLD_WAIT_MODE_AUTO => WaitMode::Auto,
            LEASEHOLD_WAIT_MODE_SPIN => WaitMode::Spin(Backoff::default()),
            _ => return Err(bad(format!("there is no wait mode {mode}"))),
        };
        Ok(Options { wait_mode, ..options })
    })
}

/// Sets how long a wait that spins pauses before it asks again. Pauses have random lengths: the
/// first one up to `first_ms`, the others up to twice as much each time, none longer than
/// `longest_ms`; LEASEHOLD_FOREVER there is what suits the store (64 ms on Redis). Pauses of zero
/// are refused. Without this, a wait asks three more times at once, then pauses up to 1 ms, 2 ms, 4
/// ms and so on. In another mode than LEASEHOLD_WAIT_MODE_SPIN, acquiring the lock is then
/// LEASEHOLD_ERR_BAD_ARGUMENT. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_set_backoff_ms(
    lock: *mut leasehold_lock,
    first_ms: i64,
    longest_ms: i64,
) -> leasehold_status {
    set(lock, "backoff", |what, options| {
        let backoff = Backoff::default().first(span(what, first_ms)?);
        let longest = limit(what, longest_ms)?;
        let backoff = longest.map_or(backoff, |longest| backoff.longest(longest));
        backoff.check()?;
        Ok(Options { backoff: Some(backoff), ..options })
    })
}

/// What a setter of this lock has refused, with the reason, while the option is not set well;
/// LEASEHOLD_OK when nothing is. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_check(
    lock: *const leasehold_lock,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::call(error, || table::get(lock)?.settings.lock().read().map(drop))
}

/// The name, and its length in `*length` unless that is NULL. A zero byte follows it, and it may
/// hold others. Borrowed. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_name(
    lock: *const leasehold_lock,
    length: *mut usize,
) -> *const c_char {
    boundary::string(lock, length, |lock| &lock.name)
}

/// Acquires the lock if it is free, without waiting for a holder.
///
/// Returns LEASEHOLD_OK and writes `*lease`, to be freed with leasehold_lease_free(); or
/// LEASEHOLD_BUSY when another holder has it. Returns LEASEHOLD_UNKNOWN, with nothing held, if the
/// request was sent and no reply came, and others for what kept the store from answering. The call
/// ends within leasehold_lock_set_io_timeout_ms(), 1 s by default. Options that can never work are
/// LEASEHOLD_ERR_BAD_ARGUMENT, before anything is sent. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_try_acquire(
    lock: *mut leasehold_lock,
    lease: *mut *mut leasehold_lease,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::open(error, "lease", lease, || {
        let lock = table::get(lock)?;
        let taken = lock.read()?.try_acquire()?;
        let busy = || Failure::new(LEASEHOLD_BUSY, "");
        Ok(leasehold_lease::new(taken.ok_or_else(busy)?, &lock.name))
    })
}

/// Acquires the lock, and waits for it as long as leasehold_lock_set_wait_ms() says.
///
/// Returns:
/// - LEASEHOLD_OK and writes `*lease`, to be freed with leasehold_lease_free().
/// - LEASEHOLD_TIMEOUT when the lock was held for the whole wait.
/// - LEASEHOLD_ERR_CLOSED when the client was closed or the lock freed during the wait.
/// - LEASEHOLD_ERR_WOULD_DEADLOCK when the wait has no limit and this thread holds the lock itself,
///   by any client of the store.
/// - Others as leasehold_lock_try_acquire().
///
/// The call ends within the wait or io_timeout (see leasehold_lock_set_io_timeout_ms()), whichever
/// is later, whatever the network does. Once the store has answered this client, a wait continues
/// through an outage of the store. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_acquire(
    lock: *mut leasehold_lock,
    lease: *mut *mut leasehold_lease,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::open(error, "lease", lease, || acquire(lock, None, None, std::ptr::null_mut()))
}

/// As leasehold_lock_acquire(), with a function that can end the wait. It may be NULL. It gets
/// `user_data`.
///
/// ```c
///     static volatile sig_atomic_t stopped;
///     static int stop(void *unused) { (void)unused; return stopped; }
///     status = leasehold_lock_acquire_unless(lock, stop, NULL, &lease, &error);
/// ```
///
/// Returns LEASEHOLD_INTERRUPTED when the function ended the wait; others as
/// leasehold_lock_acquire(). A request that is under way is not interrupted: it ends by
/// io_timeout. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_acquire_unless(
    lock: *mut leasehold_lock,
    interrupt: leasehold_interrupt_fn,
    user_data: *mut c_void,
    lease: *mut *mut leasehold_lease,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::open(error, "lease", lease, || acquire(lock, None, interrupt, user_data))
}

/// As leasehold_lock_acquire_unless(), with a limit of its own, whatever
/// leasehold_lock_set_wait_ms() said: 0 tries once, LEASEHOLD_FOREVER waits without limit. The
/// function may be NULL. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_acquire_within(
    lock: *mut leasehold_lock,
    wait_ms: i64,
    interrupt: leasehold_interrupt_fn,
    user_data: *mut c_void,
    lease: *mut *mut leasehold_lease,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::open(error, "lease", lease, || acquire(lock, Some(wait_ms), interrupt, user_data))
}

/// As leasehold_lock_acquire_unless(), with the fence in the same call. With leasehold_lease_end(),
/// acquiring and releasing is two calls, which counts where calls cost more than in C. Any thread.
///
/// ```c
///     leasehold_turn turn;
///     if (leasehold_lock_take(lock, NULL, NULL, &turn, &error) == LEASEHOLD_OK) {
///         charge(order, turn.fence);
///         leasehold_lease_end(turn.lease, false, NULL);
///     }
/// ```
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_take(
    lock: *mut leasehold_lock,
    interrupt: leasehold_interrupt_fn,
    user_data: *mut c_void,
    turn: *mut leasehold_turn,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::output(error, "turn", turn, || {
        leasehold_turn::of(acquire(lock, None, interrupt, user_data)?)
    })
}

/// Continues a lease that another process acquired and passed on with leasehold_lease_detach(). For
/// example, a web request acquires it and a worker releases it. `token` is what
/// leasehold_lease_token() returned there, of `token_length` bytes or LEASEHOLD_NUL.
///
/// This call sends no request. The lease has a token of its own. Rely on it only after its first
/// successful leasehold_lease_extend(); from then on it is renewed too. That call returns
/// LEASEHOLD_LOST in two cases: no process detached a lease with this token and fence, or another
/// program that attached it has extended it first. The token alone is enough to release the lock.
/// Any thread. Errors: LEASEHOLD_ERR_BAD_ARGUMENT for what can be no token or fence.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_attach(
    lock: *mut leasehold_lock,
    token: *const c_char,
    token_length: usize,
    fence: u64,
    lease: *mut *mut leasehold_lease,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::open(error, "lease", lease, || {
        let lock = table::get(lock)?;
        let token = text("token", token, token_length)?.parse()?;
        Ok(leasehold_lease::new(lock.read()?.attach(token, fence)?, &lock.name))
    })
}

/// Reads who holds the lock and who waits for it. Changes nothing. Any thread. Errors: what kept
/// the store from answering, by io_timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_inspect(
    lock: *mut leasehold_lock,
    state: *mut *mut leasehold_lock_state,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::open(error, "state", state, || {
        // No option matters for looking, so none that was refused is in the way.
        let lock = table::get(lock)?.plain();
        Ok(leasehold_lock_state::new(lock.inspect()?))
    })
}

/// Breaks a lock that its holder does not release. The store hands it to the first waiter at once,
/// under a larger fence. Nothing stops the holder until its next renewal. Then its lease is lost,
/// and its event, error and log say who broke it: `by`, of `by_length` bytes or LEASEHOLD_NUL, such
/// as "root@web-3". An `if_fence` other than 0 breaks only the lease with that fence.
/// (leasehold_lock_state_fence() returns 0 for a free lock.)
///
/// Returns:
/// - LEASEHOLD_OK and writes the fence of the lease that is over, 0 where the store did not know
///   it.
/// - LEASEHOLD_BUSY when another lease holds the lock than `if_fence` says.
/// - LEASEHOLD_LOST when the lock is free.
/// - LEASEHOLD_UNKNOWN where the store did not confirm it. Call it again to find out.
/// - LEASEHOLD_ERR_WRONG_TYPE where something else than a lock of this library uses the name.
/// - Others for what kept the store from answering, by io_timeout.
///
/// Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_break(
    lock: *mut leasehold_lock,
    if_fence: u64,
    by: *const c_char,
    by_length: usize,
    fence: *mut u64,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::output(error, "fence", fence, || {
        // No option matters for it, so none that was refused is in the way.
        let lock = table::get(lock)?.plain();
        let by = String::from_utf8_lossy(bytes("operator", by, by_length, MAX_TEXT)?);
        match lock.break_held((if_fence != 0).then_some(if_fence), &by)? {
            Break::Broken { fence } => Ok(fence),
            Break::NotHeld => Err(Failure::new(LEASEHOLD_LOST, "the lock is free")),
            Break::OtherFence { .. } => Err(Failure::new(LEASEHOLD_BUSY, "")),
        }
    })
}

/// Frees a lock. Its leases continue. Threads that wait for it return LEASEHOLD_ERR_CLOSED within
/// 200 ms, or by io_timeout if a request is under way. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_lock_free(lock: *mut leasehold_lock) {
    boundary::free(lock, |lock| lock.freed.store(true, Ordering::Release));
}
