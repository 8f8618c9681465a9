//! Leader election: one candidate of this process, and the work that it does while it leads.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::boundary::{self, leasehold_error};
use super::bytes::{CBytes, bytes, limit, span};
use super::client::leasehold_client;
use super::failure::{Failure, LEASEHOLD_ERR_CLOSED, bad, leasehold_status};
use super::lock::leasehold_interrupt_fn;
use super::lock_state::leasehold_lock_state;
use super::settings::Settings;
use super::term::{leasehold_term, reasons};
use super::{registered, table};
use crate::config::limits::MAX_NAME;
use crate::fork::HANDLES;
use crate::sync::Mutex;
use crate::{Election, ElectionState, Error, ErrorKind, Leadership, Term};

/// One candidate for the leadership of a name, from leasehold_client_election(). One thread stands,
/// and others resign, stop it, or ask whether it leads. Free it with leasehold_election_free().
///
/// ```c
///     static int collect(void *data, leasehold_term *term)
///     {
///         do collect_once(data, leasehold_term_fence(term)); // the database rejects a smaller fence
///         while (leasehold_term_leads_after_ms(term, 1000));
///         return 0;
///     }
///
///     leasehold_client_election(client, "collector", LEASEHOLD_NUL, &election, &error);
///     leasehold_election_set_ttl_ms(election, 15000);
///     leasehold_election_run_as_leader(election, collect, NULL, data, &returned, &error);
/// ```
pub struct leasehold_election {
    settings: Mutex<Settings<Election>>,
    name: CBytes,
    freed: AtomicBool,
}

impl table::Handled for leasehold_election {}

/// It does not stand: it has not begun, its work has ended, or it was stopped.
pub const LEASEHOLD_ELECTION_IDLE: i32 = 0;
/// It waits to be elected, or rests first.
pub const LEASEHOLD_ELECTION_STANDBY: i32 = 1;
/// It leads.
pub const LEASEHOLD_ELECTION_LEADING: i32 = 2;
/// Its leadership has ended and the work was told to stop. No other candidate can be elected yet.
pub const LEASEHOLD_ELECTION_STOPPING: i32 = 3;
/// Its lease is over, and the work has still not stopped: another candidate may lead beside it.
pub const LEASEHOLD_ELECTION_OVERDUE: i32 = 4;

/// The work of a leader, on the thread that called leasehold_election_run_as_leader(). It does its
/// work while leasehold_term_is_leader() is true, or leasehold_term_leads_after_ms(), and returns
/// soon after that. 0 says that all is well, and any other number ends the call, which hands it out.
/// `term` is borrowed for the call. The work may call this library, but must return, not longjmp()
/// or throw.
pub type leasehold_election_work_fn =
    Option<unsafe extern "C" fn(user_data: *mut c_void, term: *mut leasehold_term) -> c_int>;

/// Is told what becomes of a candidate: see leasehold_election_on_change(). `end` is
/// LEASEHOLD_TERM_LASTS when it was elected. Else its term has ended, and `end` says why;
/// `loss` is the LEASEHOLD_LOSS_... behind LEASEHOLD_TERM_LOST. It may call this library, but must
/// return soon, not longjmp() or throw.
pub type leasehold_election_change_fn =
    Option<unsafe extern "C" fn(user_data: *mut c_void, fence: u64, end: i32, loss: i32)>;

/// Frees what `user_data` leads to, when nobody will use it any more. It must not call this library.
pub type leasehold_election_drop_fn = Option<unsafe extern "C" fn(user_data: *mut c_void)>;

impl leasehold_election {
    /// In a section, so that no child inherits the mutex locked.
    fn with<T>(&self, work: impl FnOnce(&mut Settings<Election>) -> T) -> T {
        let _steady = HANDLES.steady();
        work(&mut self.settings.lock())
    }

    fn read(&self) -> Result<Election, Failure> {
        self.with(|settings| settings.read())
    }

    /// The candidate, whatever options were refused.
    fn plain(&self) -> Election {
        self.with(|settings| settings.accepted.clone())
    }

    fn is_freed(&self) -> bool {
        self.freed.load(Ordering::Acquire)
    }

    fn free(&self) {
        self.freed.store(true, Ordering::Release);
        self.plain().stop();
    }

    fn stand(
        &self,
        wait_ms: i64,
        ends: &mut dyn FnMut() -> bool,
    ) -> Result<leasehold_term, Failure> {
        let limit = limit("wait", wait_ms)?;
        match self.read()?.campaign(limit, ends) {
            Ok(term) => Ok(leasehold_term::owned(term)),
            Err(error) if error.kind() == ErrorKind::Interrupted && self.is_freed() => {
                Err(Failure::new(LEASEHOLD_ERR_CLOSED, "the election was freed during the call"))
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn set(
    election: *mut leasehold_election,
    what: &'static str,
    change: impl FnOnce(&'static str, Election) -> Result<Election, Failure>,
) -> leasehold_status {
    boundary::call(std::ptr::null_mut(), || {
        table::get(election)?.with(|settings| settings.set(what, change))
    })
}

/// Asks the caller's function, if there is one, whether the wait is to end.
fn interrupted(interrupt: leasehold_interrupt_fn, user_data: *mut c_void) -> bool {
    // SAFETY: the header asks for one that may be called so, on this thread, until this call ends.
    interrupt.is_some_and(|ask| unsafe { ask(user_data) != 0 })
}

/// Makes a candidate for a name of `name_length` bytes or LEASEHOLD_NUL. Underneath is a lock of that
/// name, so `leasehold show` shows the leader. It sends no request. Any thread. Errors:
/// LEASEHOLD_ERR_BAD_ARGUMENT for a name that no lock can have, see leasehold_client_lock().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_client_election(
    client: *mut leasehold_client,
    name: *const c_char,
    name_length: usize,
    election: *mut *mut leasehold_election,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::open(error, "election", election, || {
        let name = bytes("name", name, name_length, MAX_NAME)?;
        let made = table::get(client)?.elect(name);
        made.lock().check_name()?;
        Ok(leasehold_election {
            name: CBytes::new(name),
            settings: Mutex::new(Settings::new(made)),
            freed: AtomicBool::new(false),
        })
    })
}

/// Sets how soon another candidate is elected after the leader died: 30000 ms by default, from 100 ms.
///
/// The setters of an election return LEASEHOLD_OK, or LEASEHOLD_ERR_BAD_ARGUMENT for a value that the
/// option can never have; leasehold_election_check() has the reason. Then standing fails too, until the
/// option is set well. A term that has begun stays as it is. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_election_set_ttl_ms(
    election: *mut leasehold_election,
    ttl_ms: i64,
) -> leasehold_status {
    set(election, "ttl", |what, election| {
        let election = election.ttl(span(what, ttl_ms)?);
        election.lock().check_renewal()?;
        election.lock().check_options()?;
        Ok(election)
    })
}

/// Sets how long the work needs to stop: 10000 ms by default. If the lease cannot be renewed, the work
/// is told to stop when that much validity is left and half a second more, or a third of the ttl if
/// that is less. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_election_set_grace_ms(
    election: *mut leasehold_election,
    grace_ms: i64,
) -> leasehold_status {
    set(election, "grace", |what, election| Ok(election.grace(span(what, grace_ms)?)))
}

/// Sets whether leasehold_election_run_as_leader() stands again when the work has returned by itself.
/// By default it does not. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_election_set_stand_again(
    election: *mut leasehold_election,
    again: bool,
) -> leasehold_status {
    set(election, "stand_again", |_, election| Ok(election.stand_again(again)))
}

/// Has `function` called when this candidate is elected, on the thread that stands, and when its
/// leadership ends, on whichever thread notices. Why a lease was lost may be known up to a second
/// later than that it was: the call comes then. It may resign, stop or free the election. A new
/// function takes the place of the former one for terms that begin later; so does NULL.
///
/// `drop` may be NULL. Else it is called once, when neither the election nor a term needs the
/// function any more, or if it was not set. A forked child never calls either.
///
/// Returns as leasehold_election_set_ttl_ms(). Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_election_on_change(
    election: *mut leasehold_election,
    function: leasehold_election_change_fn,
    user_data: *mut c_void,
    drop: leasehold_election_drop_fn,
) -> leasehold_status {
    let data = UserData { data: user_data, drop };
    set(election, "on_change", move |_, election| {
        Ok(match function {
            None => election.without_on_change(),
            Some(function) => election.on_change(move |change| tell(function, &data, change)),
        })
    })
}

/// What a setter of this election has refused, with the reason, while the option is not set well;
/// LEASEHOLD_OK when nothing is. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_election_check(
    election: *const leasehold_election,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::call(error, || table::get(election)?.read().map(drop))
}

/// The name, and its length in `*length` unless that is NULL. A zero byte follows it, and it may hold
/// others. Borrowed. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_election_name(
    election: *const leasehold_election,
    length: *mut usize,
) -> *const c_char {
    boundary::string(election, length, |election| &election.name)
}

/// Stands by, calls `work` on this thread when elected, and stands again when the leadership was lost.
/// It waits through outages of the store, also where the store cannot be reached at the start. After
/// each term it rests for about a second, so that other candidates are elected first.
///
/// `interrupt` may be NULL. It is asked while the candidate stands, not while the work runs. Both
/// functions get `user_data`.
///
/// - If the work returns 0 after its term has ended, the lock is released and the candidate stands
///   again.
/// - If the work returns 0 while it leads, the lock is released and the call returns. With
///   leasehold_election_set_stand_again() the candidate stands again instead.
/// - If the work returns another number, the lock is released and the call returns.
/// - If the work does not stop when its term has ended, the lock stays held and is renewed if that is
///   possible. Else another candidate is elected when validity ends, with a larger fence.
///
/// Returns:
/// - LEASEHOLD_OK and writes what the work returned into `*returned`: 0 also where the election was
///   stopped or freed.
/// - LEASEHOLD_INTERRUPTED when the interrupt function ended the standing.
/// - LEASEHOLD_LOST when the work returned 0 while it seemed to lead, and the store says that the lock
///   was lost before.
/// - LEASEHOLD_ERR_WOULD_DEADLOCK when this thread leads already.
/// - LEASEHOLD_ERR_CLOSED when the client is closed, and others that waiting does not mend, such as
///   LEASEHOLD_ERR_AUTH. LEASEHOLD_ERR_BAD_ARGUMENT for options that were refused, and without work.
///
/// Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_election_run_as_leader(
    election: *mut leasehold_election,
    work: leasehold_election_work_fn,
    interrupt: leasehold_interrupt_fn,
    user_data: *mut c_void,
    returned: *mut c_int,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::output(error, "returned", returned, || {
        let candidate = table::get(election)?.read()?;
        let work = work.ok_or_else(|| bad("the work is NULL"))?;
        let lead = |term: &Arc<Term>| match run(work, user_data, term)? {
            0 => Ok(()),
            returned => Err(Outcome::Returned(returned)),
        };
        match candidate.lead(&mut || interrupted(interrupt, user_data), lead) {
            Ok(()) => Ok(0),
            Err(Outcome::Returned(returned)) => Ok(returned),
            Err(Outcome::Failed(failure)) => Err(failure),
        }
    })
}

/// Waits until this candidate is elected, `wait_ms` at most; LEASEHOLD_FOREVER has no limit. For work
/// that has a thread of its own; leasehold_election_run_as_leader() does the rest for others. It waits
/// and rests as that does. `interrupt` may be NULL, and gets `user_data`.
///
/// Returns:
/// - LEASEHOLD_OK and writes `*term`, to be freed with leasehold_term_free().
/// - LEASEHOLD_TIMEOUT when it was not elected in time. If the store failed until the end, the error of
///   the store instead.
/// - LEASEHOLD_INTERRUPTED when the function ended the wait, or the election was stopped.
/// - LEASEHOLD_ERR_CLOSED also when the election was freed during the wait.
/// - Others as leasehold_election_run_as_leader().
///
/// Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_election_stand_within(
    election: *mut leasehold_election,
    wait_ms: i64,
    interrupt: leasehold_interrupt_fn,
    user_data: *mut c_void,
    term: *mut *mut leasehold_term,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::open(error, "term", term, || {
        table::get(election)?.stand(wait_ms, &mut || interrupted(interrupt, user_data))
    })
}

/// Reads who leads now, as leasehold_lock_inspect() reads who holds a lock: `*state` has the fence, the
/// host and the process. Any thread. Errors: what kept the store from answering, by io_timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_election_leader(
    election: *mut leasehold_election,
    state: *mut *mut leasehold_lock_state,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::open(error, "state", state, || {
        // No option matters for looking, so none that was refused is in the way.
        Ok(leasehold_lock_state::new(table::get(election)?.plain().lock().inspect()?))
    })
}

/// What this candidate does at this moment: one of LEASEHOLD_ELECTION_... Sends no request. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_election_state(election: *const leasehold_election) -> i32 {
    boundary::get(election, LEASEHOLD_ELECTION_IDLE, |election| match election.plain().state() {
        ElectionState::Idle => LEASEHOLD_ELECTION_IDLE,
        ElectionState::Standby => LEASEHOLD_ELECTION_STANDBY,
        ElectionState::Leading => LEASEHOLD_ELECTION_LEADING,
        ElectionState::Stopping => LEASEHOLD_ELECTION_STOPPING,
        ElectionState::Overdue => LEASEHOLD_ELECTION_OVERDUE,
    })
}

/// The fence of the term in which this candidate leads; 0 while it does not. Sends no request. Any
/// thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_election_fence(election: *const leasehold_election) -> u64 {
    boundary::get(election, 0, |election| election.plain().fence().unwrap_or(0))
}

/// Whether all is well, for an answer to /healthz: false while the work still runs after its lease has
/// ended, and nothing but the end of the process stops it. A standby is healthy. Sends no request. Any
/// thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_election_is_healthy(
    election: *const leasehold_election,
) -> bool {
    boundary::get(election, false, |election| election.plain().is_healthy())
}

/// Tells the work to stop, if this candidate leads; the lock is released when the work has stopped.
/// Other candidates are elected first: this one rests for about a second before it stands again. Any
/// thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_election_resign(
    election: *mut leasehold_election,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::call(error, || {
        table::get(election)?.plain().resign();
        Ok(())
    })
}

/// Ends the election for this candidate, for good. It resigns, and threads that stand return within
/// 100 ms, or when a silent store's io_timeout is over. leasehold_election_run_as_leader() returns
/// LEASEHOLD_OK when the work has stopped, and leasehold_election_stand_within()
/// LEASEHOLD_INTERRUPTED. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_election_stop(
    election: *mut leasehold_election,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::call(error, || {
        table::get(election)?.plain().stop();
        Ok(())
    })
}

/// Frees a candidate, and stops it as leasehold_election_stop() does. A term from
/// leasehold_election_stand_within() keeps its handle and its lock until it is freed, but has ended.
/// Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_election_free(election: *mut leasehold_election) {
    boundary::free(election, |election| election.free());
}

/// What ends a leader's work but its term.
enum Outcome {
    Returned(c_int),
    Failed(Failure),
}

impl From<Error> for Outcome {
    fn from(error: Error) -> Outcome {
        Outcome::Failed(error.into())
    }
}

impl From<Failure> for Outcome {
    fn from(failure: Failure) -> Outcome {
        Outcome::Failed(failure)
    }
}

type Work = unsafe extern "C" fn(*mut c_void, *mut leasehold_term) -> c_int;

fn run(work: Work, user_data: *mut c_void, term: &Arc<Term>) -> Result<c_int, Failure> {
    let handle = table::open(leasehold_term::lent(Arc::clone(term)))?;
    // SAFETY: the header asks for one that may be called so, on this thread, until this call ends.
    let returned = unsafe { work(user_data, handle) };
    boundary::free(handle, drop);
    Ok(returned)
}

struct UserData {
    data: *mut c_void,
    drop: leasehold_election_drop_fn,
}

// SAFETY: the header says on which threads the function is called and the data freed, and asks for
// data for which that is right; nobody else follows the pointer.
unsafe impl Send for UserData {}
// SAFETY: as above; a candidate leads once at a time, but the end of one term may be told while the
// next begins, which the header says by naming the threads.
unsafe impl Sync for UserData {}

impl Drop for UserData {
    fn drop(&mut self) {
        if let Some(drop) = self.drop {
            // SAFETY: the header asks for a function that may be called so; a value is dropped once.
            unsafe { drop(self.data) };
        }
    }
}

type Change = unsafe extern "C" fn(*mut c_void, u64, i32, i32);

fn tell(function: Change, data: &UserData, change: Leadership) {
    let (fence, end) = match change {
        Leadership::Elected { fence } => (fence, None),
        Leadership::Ended { fence, why } => (fence, Some(why)),
    };
    let (end, loss) = reasons(end);
    // SAFETY: the header asks for a function that may be called so, with this data.
    registered::inside(|| unsafe { function(data.data, fence, end, loss) });
}
