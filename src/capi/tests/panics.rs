//! Panics under the boundary: each comes out as a status, and leaves everything usable.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::panic::Location;
use std::ptr::null_mut;
use std::sync::Mutex;

use crate::capi::boundary::leasehold_error;
use crate::capi::client::*;
use crate::capi::config::*;
use crate::capi::error::*;
use crate::capi::events::*;
use crate::capi::failure::*;
use crate::capi::lease::*;
use crate::capi::lock::*;
use crate::capi::lock_state::*;
use crate::capi::log::*;
use crate::capi::lost::*;
use crate::capi::waits::*;

thread_local! {
    /// At how many more points this thread goes on before it panics; 0 is never.
    static FUSE: Cell<u32> = const { Cell::new(0) };
}

const SECRET: &str = "a payload that may hold anything";

/// A point at which a test can have the library panic.
#[track_caller]
pub(in crate::capi) fn inject() {
    match FUSE.get() {
        0 => {}
        1 => {
            FUSE.set(0);
            std::panic::panic_any(Unpleasant(Location::caller().line()));
        }
        more => FUSE.set(more - 1),
    }
}

/// A payload whose end panics in turn.
struct Unpleasant(u32);

impl Drop for Unpleasant {
    fn drop(&mut self) {
        panic!("{SECRET}, dropped, from line {}", self.0);
    }
}

/// Runs one call with a panic at its nth point. True if it came that far.
fn armed<T>(nth: u32, call: impl FnOnce() -> T) -> (bool, T) {
    FUSE.set(nth);
    let came = call();
    (FUSE.replace(0) == 0, came)
}

/// What the calls under test work with.
struct World {
    client: *mut leasehold_client,
    lock: *mut leasehold_lock,
    other: *mut leasehold_lock,
    lease: *mut leasehold_lease,
    events: *mut leasehold_events,
    waits: *mut leasehold_waits,
    url: String,
    _folder: tempfile::TempDir,
}

type Errors = *mut *mut leasehold_error;

fn made<T>(make: impl FnOnce(*mut *mut T, Errors) -> leasehold_status) -> *mut T {
    let (mut made, mut error) = (null_mut(), null_mut());
    let status = make(&raw mut made, &raw mut error);
    // SAFETY: an error of this library, or NULL.
    let message = unsafe { CStr::from_ptr(leasehold_error_message(error)) };
    assert_eq!(status, LEASEHOLD_OK, "{message:?}");
    made
}

fn start(text: &str) -> *const c_char {
    text.as_ptr().cast()
}

impl World {
    fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("locks.db").display());
        // SAFETY: texts of these lengths, and places for outputs.
        unsafe {
            let client =
                made(|out, error| leasehold_client_open(start(&url), url.len(), out, error));
            let lock =
                made(|out, error| leasehold_client_lock(client, c"a".as_ptr(), 1, out, error));
            let other =
                made(|out, error| leasehold_client_lock(client, c"b".as_ptr(), 1, out, error));
            let lease = made(|out, error| leasehold_lock_acquire(lock, out, error));
            let events = made(|out, error| leasehold_client_events(client, out, error));
            let waits = made(|out, error| leasehold_waits_open(out, error));
            World { client, lock, other, lease, events, waits, url, _folder: folder }
        }
    }

    fn taken(&self) -> *mut leasehold_lease {
        // SAFETY: a handle of this library and places for outputs.
        made(|out, error| unsafe { leasehold_lock_acquire(self.other, out, error) })
    }

    /// Of a name that nobody has used: what detaches it leaves the name taken.
    fn taken_anew(&self) -> *mut leasehold_lease {
        let name = crate::Token::random().unwrap().to_string();
        // SAFETY: text of that length, handles of this library and places for outputs.
        unsafe {
            let lock = made(|out, error| {
                leasehold_client_lock(self.client, start(&name), name.len(), out, error)
            });
            let lease = made(|out, error| leasehold_lock_acquire(lock, out, error));
            leasehold_lock_free(lock);
            lease
        }
    }

    fn config(&self) -> *mut leasehold_config {
        // SAFETY: text of that length, and places for outputs.
        made(|out, error| unsafe {
            leasehold_config_from_url(start(&self.url), self.url.len(), out, error)
        })
    }

    fn event(&self) -> *mut leasehold_event {
        // SAFETY: handles of this library and places for outputs.
        unsafe {
            leasehold_lock_set_renew(self.other, false);
            leasehold_lock_set_ttl_ms(self.other, 3);
            let brief = self.taken();
            let event =
                made(|out, error| leasehold_events_next_within(self.events, 60_000, out, error));
            leasehold_lease_free(brief);
            leasehold_lock_set_ttl_ms(self.other, 60_000);
            leasehold_lock_set_renew(self.other, true);
            event
        }
    }

    /// Whatever panicked before, every handle does what it did.
    fn is_well(&self) {
        // SAFETY: handles of this library and places for outputs.
        unsafe {
            assert!(leasehold_lease_is_valid(self.lease));
            let mut none = null_mut();
            let status = leasehold_lock_try_acquire(self.lock, &raw mut none, null_mut());
            assert_eq!((status, none), (LEASEHOLD_BUSY, null_mut()));
        }
    }
}

/// Its lease would be lost with the folder.
impl Drop for World {
    fn drop(&mut self) {
        // SAFETY: handles of this library.
        unsafe {
            leasehold_lease_free(self.lease);
            leasehold_client_free(self.client);
        }
    }
}

unsafe extern "C" fn never(_: *mut c_void, _: *const leasehold_event) -> i32 {
    panic!("the lease is not lost");
}

type Call<'a> = (&'static str, Box<dyn Fn(u32, Errors) -> (bool, leasehold_status) + 'a>);

/// The functions that say how they went, each with what it needs.
fn calls(world: &World) -> Vec<Call<'_>> {
    macro_rules! call {
        // Something made for this one call, and freed after it.
        ($function:ident, $with:ident: $make:expr => $free:ident, ($($argument:expr),*)) => {
            (stringify!($function), Box::new(move |nth, error| {
                let $with = $make;
                // SAFETY: handles of this library, NULL where it may be, texts that are there.
                let came = armed(nth, || unsafe { $function($($argument,)* error) });
                // SAFETY: made above, and freed this once.
                unsafe { $free($with) };
                came
            }) as Box<dyn Fn(u32, Errors) -> (bool, leasehold_status)>)
        };
        // Something comes out, which stays as it was when there is a panic.
        ($function:ident, ($($argument:expr),*), $out:expr => $free:expr) => {
            (stringify!($function), Box::new(move |nth, error| {
                let before = $out;
                let mut out = before;
                // SAFETY: as above.
                let came = armed(nth, || unsafe { $function($($argument,)* &raw mut out, error) });
                if came.0 {
                    assert_eq!(out, before, stringify!($function));
                } else {
                    $free(out);
                }
                came
            }) as Box<dyn Fn(u32, Errors) -> (bool, leasehold_status)>)
        };
        ($function:ident, ($($argument:expr),*)) => {
            (stringify!($function), Box::new(move |nth, error| {
                // SAFETY: as above.
                armed(nth, || unsafe { $function($($argument,)* error) })
            }) as Box<dyn Fn(u32, Errors) -> (bool, leasehold_status)>)
        };
    }
    macro_rules! free {
        ($free:ident) => {
            // SAFETY: a handle of this library.
            |out| unsafe { $free(out) }
        };
    }
    let World { client, lock, other, lease, events, waits, .. } = *world;
    let (url, length) = (start(&world.url), world.url.len());
    let token = "0123456789abcdef0123456789abcdef";
    vec![
        call!(leasehold_config_from_url, (url, length), null_mut() => free!(leasehold_config_free)),
        call!(leasehold_config_from_env, (), null_mut() => free!(leasehold_config_free)),
        call!(leasehold_client_open, (url, length), null_mut() => free!(leasehold_client_free)),
        call!(leasehold_client_lock, (client, url, length), null_mut() => free!(leasehold_lock_free)),
        call!(leasehold_client_events, (client), null_mut() => free!(leasehold_events_free)),
        call!(leasehold_client_counter, (client, LEASEHOLD_COUNTER_BUSY), u64::MAX => |_| ()),
        call!(leasehold_client_ping, (client)),
        call!(leasehold_lock_check, (lock)),
        call!(leasehold_lock_try_acquire, (other), null_mut() => free!(leasehold_lease_free)),
        call!(leasehold_lock_acquire, (other), null_mut() => free!(leasehold_lease_free)),
        call!(leasehold_lock_acquire_unless, (other, None, null_mut()), null_mut()
            => free!(leasehold_lease_free)),
        call!(leasehold_lock_take, (other, None, null_mut()), leasehold_turn { lease: null_mut(), fence: 0 }
            // SAFETY: a lease of this library.
            => |turn: leasehold_turn| unsafe { leasehold_lease_free(turn.lease) }),
        call!(leasehold_lock_acquire_within, (other, 20_000, None, null_mut()), null_mut()
            => free!(leasehold_lease_free)),
        call!(leasehold_lock_attach, (other, start(token), token.len(), 7), null_mut()
            => free!(leasehold_lease_free)),
        call!(leasehold_lock_inspect, (lock), null_mut() => free!(leasehold_lock_state_free)),
        call!(leasehold_waits_open, (), null_mut() => free!(leasehold_waits_free)),
        call!(leasehold_waits_stop, (waits, 1)),
        call!(leasehold_lease_extend, (lease)),
        call!(leasehold_lease_extend_for_ms, (lease, 60_000)),
        call!(leasehold_lease_on_lost, (lease, Some(never), null_mut(), None)),
        call!(leasehold_lease_watch, (lease, events), 0 => |_| ()),
        call!(leasehold_lease_release, taken: world.taken() => leasehold_lease_free, (taken)),
        call!(leasehold_lease_let_expire_in_ms, taken: world.taken() => leasehold_lease_free, (taken, 3)),
        call!(leasehold_lease_detach, taken: world.taken_anew() => leasehold_lease_free, (taken)),
        // SAFETY: the URL is there, and there is room for what comes out.
        call!(leasehold_client_close_within, closing: made(|out, error| unsafe {
            leasehold_client_open(url, length, out, error)
        }) => leasehold_client_free, (closing, 1000)),
        call!(leasehold_log_set, (None, null_mut(), LEASEHOLD_LOG_OFF)),
    ]
}

#[test]
fn c11_a_thousand_panics_are_a_thousand_error_codes() {
    let world = World::new();
    let calls = calls(&world);
    let mut blown = 0;
    for (function, call) in calls.iter().cycle() {
        for nth in 1.. {
            let mut error = null_mut();
            let (panicked, status) = call(nth, &raw mut error);
            // SAFETY: an error of this library, or NULL.
            let told = unsafe { leasehold_error_status(error) };
            // SAFETY: the same one, freed this once.
            unsafe { leasehold_error_free(error) };
            if !panicked {
                assert_eq!((status, told), (LEASEHOLD_OK, LEASEHOLD_OK), "{function}");
                assert!(nth > 1, "{function} has no point at which it could panic");
                break;
            }
            assert_eq!(status, LEASEHOLD_ERR_PANIC, "{function} at point {nth}");
            assert_eq!(told, LEASEHOLD_ERR_PANIC, "{function} at point {nth}");
            blown += 1;
        }
        world.is_well();
        if blown >= 1000 {
            break;
        }
    }
}

#[test]
fn c11_plain_values_are_neutral_when_there_is_a_panic() {
    let world = World::new();
    let (event, config) = (world.event(), world.config());
    // SAFETY: a lock of this library, and room for what comes out.
    let state = made(|out, error| unsafe { leasehold_lock_inspect(world.lock, out, error) });
    let mut error = null_mut();
    let mut length = 77;
    let lengths = &raw mut length;
    macro_rules! neutral {
        ($($function:ident($($argument:expr),*) == $value:expr;)*) => {$(
            for nth in 1.. {
                // SAFETY: handles of this library, and room for a length.
                #[allow(unused_unsafe)]
                let (panicked, came) = armed(nth, || unsafe { $function($($argument),*) });
                if !panicked {
                    assert!(nth > 1 && came != $value, "{}: {came:?}", stringify!($function));
                    break;
                }
                assert_eq!(came, $value, "{} at point {nth}", stringify!($function));
            }
        )*};
    }
    // SAFETY: a wrong handle is an error like any other.
    unsafe { leasehold_client_ping(null_mut(), &raw mut error) };
    neutral! {
        leasehold_lease_fence(world.lease) == 0;
        leasehold_lease_remaining_ms(world.lease) == 0;
        leasehold_lease_is_valid(world.lease) == false;
        leasehold_lock_state_is_held(state) == false;
        leasehold_lock_state_ttl_ms(state) == 0;
        leasehold_lock_state_fence(state) == 0;
        leasehold_lock_state_last_fence(state) == 0;
        leasehold_event_kind(event) == LEASEHOLD_EVENT_NONE;
        leasehold_event_reason(event) == LEASEHOLD_LOSS_NONE;
        leasehold_event_fence(event) == 0;
        leasehold_event_lease_id(event) == 0;
        leasehold_events_descriptor(world.events) == -1;
        leasehold_waits_descriptor(world.waits) == -1;
        leasehold_error_status(error) == LEASEHOLD_ERR_PANIC;
        leasehold_status_is_retriable(LEASEHOLD_BUSY) == false;
    }
    macro_rules! empty {
        ($($function:ident($($argument:expr),*);)*) => {$(
            // SAFETY: strings of this library end with zero.
            let (panicked, came) = armed(1, || unsafe { CStr::from_ptr($function($($argument),*)) });
            assert!(panicked);
            assert!(!came.to_str().unwrap().contains("panics"), "{came:?}");
        )*};
    }
    empty! {
        leasehold_lease_token(world.lease);
        leasehold_lease_name(world.lease, lengths);
        leasehold_lock_name(world.lock, lengths);
        leasehold_event_name(event, lengths);
        leasehold_event_detail(event);
        leasehold_lock_state_token_prefix(state);
        leasehold_lock_state_fact(state, 0, LEASEHOLD_FACT_WHO);
        leasehold_client_store(world.client);
        leasehold_config_store(config);
        leasehold_error_message(error);
        leasehold_error_detail(error);
        leasehold_status_name(LEASEHOLD_OK);
        leasehold_status_message(LEASEHOLD_OK);
        leasehold_status_advice(LEASEHOLD_OK);
    }
    assert_eq!(length, 0);
}

static HEARD: Mutex<Vec<String>> = Mutex::new(Vec::new());

unsafe extern "C" fn hear(_: *mut c_void, level: leasehold_log_level, message: *const c_char) {
    assert_eq!(level, LEASEHOLD_LOG_ERROR);
    // SAFETY: the library's own text.
    let message = unsafe { CStr::from_ptr(message) };
    HEARD.lock().unwrap().push(message.to_str().unwrap().to_owned());
}

/// Alone in its process: there is one log, and one standard error.
#[test]
fn c12_a_panic_says_where_it_was_to_the_log_and_nothing_to_anybody_else() {
    const ALONE: &str = "KIT_ALONE";
    if std::env::var_os(ALONE).is_some() {
        // SAFETY: a function that may be called so at any time.
        unsafe { leasehold_log_set(Some(hear), null_mut(), LEASEHOLD_LOG_ERROR, null_mut()) };
        let (panicked, name) = armed(1, || leasehold_status_name(LEASEHOLD_OK));
        assert!(panicked && !name.is_null());
        let heard = HEARD.lock().unwrap();
        assert!(heard.len() == 1 && heard[0].contains("panicked at src"), "{heard:?}");
        assert!(!heard[0].contains(SECRET), "{heard:?}");
        return;
    }
    let program = std::env::current_exe().unwrap();
    let name = std::thread::current().name().unwrap().to_owned();
    let child = std::process::Command::new(program)
        .args(["--exact", &name, "--nocapture"])
        .env(ALONE, "yes")
        .output()
        .unwrap();
    let said = String::from_utf8(child.stdout).unwrap();
    assert!(child.status.success() && said.contains("1 passed"), "{said}");
    assert_eq!(String::from_utf8(child.stderr).unwrap(), "");
}
