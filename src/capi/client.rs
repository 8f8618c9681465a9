//! An open store.

use std::ffi::c_char;

use super::boundary::{self, leasehold_error};
use super::bytes::{CBytes, bytes, span, text};
use super::config::leasehold_config;
use super::events::leasehold_events;
use super::failure::{Failure, bad, leasehold_status};
use super::lock::leasehold_lock;
use super::table::{self, Handled};
use crate::config::limits::MAX_NAME;
use crate::{Client, Config, Counters, Election};

/// An open store with its connections and a background thread that renews leases. (On Redis, one
/// more thread belongs to the connection pools; it sleeps, and ends when everything that came of
/// the client is freed.) Open one for a process and share it between threads. Free it with
/// leasehold_client_free().
pub struct leasehold_client {
    client: Client,
    store: CBytes,
}

impl leasehold_client {
    pub(super) fn elect(&self, name: &[u8]) -> Election {
        self.client.election(name)
    }
}

impl Handled for leasehold_client {
    fn in_child(&self) -> Option<leasehold_client> {
        let store = CBytes::new(self.client.store());
        self.client.reopens().then(|| leasehold_client { client: self.client.clone(), store })
    }
}

/// What a client counts: one of LEASEHOLD_COUNTER_...
pub type leasehold_counter = i32;
/// Requests to a store for a lock, every try of a wait included.
pub const LEASEHOLD_COUNTER_ATTEMPTS: leasehold_counter = 1;
/// Leases acquired.
pub const LEASEHOLD_COUNTER_GRANTED: leasehold_counter = 2;
/// Tries that found the lock held.
pub const LEASEHOLD_COUNTER_BUSY: leasehold_counter = 3;
/// Waits that ran out.
pub const LEASEHOLD_COUNTER_TIMED_OUT: leasehold_counter = 4;
/// Requests whose outcome stayed unknown.
pub const LEASEHOLD_COUNTER_UNKNOWN: leasehold_counter = 5;
/// Renewals that the store confirmed.
pub const LEASEHOLD_COUNTER_RENEWED: leasehold_counter = 6;
/// Leases that were lost while held.
pub const LEASEHOLD_COUNTER_LOST: leasehold_counter = 7;
/// Releases that found the lease gone, or could not tell.
pub const LEASEHOLD_COUNTER_RELEASED_LATE: leasehold_counter = 8;

impl leasehold_client {
    fn new(config: Config) -> Result<leasehold_client, Failure> {
        let client = Client::with_config(config)?;
        let store = CBytes::new(client.store());
        Ok(leasehold_client { client, store })
    }
}

/// Opens the store that a URL names, of `url_length` bytes or LEASEHOLD_NUL;
/// leasehold_config_from_url() lists the URLs.
///
/// A Redis store connects when it is first asked, so a client can be opened before its server;
/// leasehold_client_ping() asks at once. An SQLite file is opened here. Any thread. Errors:
/// LEASEHOLD_ERR_BAD_ARGUMENT for the URL, LEASEHOLD_ERR_STORAGE for the file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_client_open(
    url: *const c_char,
    url_length: usize,
    client: *mut *mut leasehold_client,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::open(error, "client", client, || {
        leasehold_client::new(Config::from_url(text("URL", url, url_length)?)?.language("c"))
    })
}

/// Opens the store that leasehold_config_from_env() finds. Any thread, as long as none changes the
/// environment. Errors: as there, and as leasehold_client_open().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_client_open_env(
    client: *mut *mut leasehold_client,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::open(error, "client", client, || {
        leasehold_client::new(Config::from_env()?.language("c"))
    })
}

/// Opens a store that was set up in code. The configuration stays the caller's to free; it can open
/// more clients, and cannot be changed any more. Any thread. Errors: as leasehold_client_open(),
/// and LEASEHOLD_ERR_BAD_ARGUMENT for settings out of range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_client_open_config(
    config: *mut leasehold_config,
    client: *mut *mut leasehold_client,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::open(error, "client", client, || {
        let config = table::get(config)?;
        // Without the mutex: opening takes its time, and may log, which may call a setter.
        let settings = config.settings.lock().read()?;
        let opened = leasehold_client::new(settings)?;
        config.settings.lock().sealed = true;
        Ok(opened)
    })
}

/// Makes a lock: a name of `name_length` bytes (any bytes, from 1 to 65536) or LEASEHOLD_NUL, and
/// options, which the functions leasehold_lock_set_...() change. It holds nothing and sends no
/// request.
///
/// On Redis the name, behind the prefix, is the key, beside "leasehold:{name}" with the last fence.
/// Give it a beginning that no other data has: a foreign key without a ttl is
/// LEASEHOLD_ERR_WRONG_TYPE, but one with a ttl looks like a lock that is held. A name that begins
/// with "leasehold:", behind the prefix, is refused: so do the keys that are kept beside locks. Any
/// thread. Errors: LEASEHOLD_ERR_BAD_ARGUMENT for the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_client_lock(
    client: *mut leasehold_client,
    name: *const c_char,
    name_length: usize,
    lock: *mut *mut leasehold_lock,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::open(error, "lock", lock, || {
        let made = table::get(client)?.client.lock(bytes("name", name, name_length, MAX_NAME)?);
        made.check_name()?;
        Ok(leasehold_lock::new(made))
    })
}

/// Connects to the store and logs in, without touching a lock. Any thread. Errors: whatever is in
/// the way, by io_timeout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_client_ping(
    client: *mut leasehold_client,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::call(error, || Ok(table::get(client)?.client.ping()?))
}

/// Declares a new deployment whose store guards against lost data (a quorum, or one with
/// guard_data_loss): nothing was granted there before, so its servers grant locks at once. Do this
/// once, before the first lock is acquired. `leasehold init` does the same.
///
/// Never call this whenever a program or a server starts. A server that has come back empty looks
/// new, and would grant at once a lock that another client still holds. The call refuses a server
/// that has come back with data, or that waits already, unless `force` declares that no client
/// relies on any lease. Any thread. Errors: LEASEHOLD_ERR_BAD_ARGUMENT for a store without that
/// guard; others say which server is in the way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_client_initialize(
    client: *mut leasehold_client,
    force: bool,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::call(error, || Ok(table::get(client)?.client.initialize(force)?))
}

/// Subscribes to what happens to the leases of this client from now on. Each subscription gets
/// every event. Any thread. Errors: LEASEHOLD_ERR_EXHAUSTED when no descriptors are left,
/// LEASEHOLD_ERR_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_client_events(
    client: *mut leasehold_client,
    events: *mut *mut leasehold_events,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::open(error, "events", events, || {
        Ok(leasehold_events::new(table::get(client)?.client.events()?))
    })
}

/// Lets forked children use this client and its locks: from now on, a child opens the store anew
/// when it first needs it. Without it, calls in a child return LEASEHOLD_ERR_FORKED; and for leases,
/// subscriptions and all other handles they always do.
///
/// Call it before the fork. A fork then waits for calls of other threads that are in the midst of
/// changing what the process has: microseconds, and on an SQLite file a sync of the disk, 2 s at most;
/// where that takes longer, the child cannot use SQLite (LEASEHOLD_ERR_STORAGE). A child that comes of
/// a bare clone(), or of a fork in a signal handler in the midst of a call, can use none of it. Any
/// thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_client_reopen_after_fork(
    client: *mut leasehold_client,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::call(error, || {
        table::get(client)?.client.reopen_after_fork();
        Ok(())
    })
}

/// What the client has counted since it was opened, for graphs: `counter` is one of
/// LEASEHOLD_COUNTER_... It still answers when the client is closed. Any thread. Errors:
/// LEASEHOLD_ERR_BAD_ARGUMENT for a counter that there is not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_client_counter(
    client: *const leasehold_client,
    counter: leasehold_counter,
    count: *mut u64,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::output(error, "count", count, || {
        // All of them, so that a new one is not forgotten here.
        let Counters { attempts, granted, busy, timed_out, unknown, renewed, lost, released_late } =
            table::get(client)?.client.counters();
        Ok(match counter {
            LEASEHOLD_COUNTER_ATTEMPTS => attempts,
            LEASEHOLD_COUNTER_GRANTED => granted,
            LEASEHOLD_COUNTER_BUSY => busy,
            LEASEHOLD_COUNTER_TIMED_OUT => timed_out,
            LEASEHOLD_COUNTER_UNKNOWN => unknown,
            LEASEHOLD_COUNTER_RENEWED => renewed,
            LEASEHOLD_COUNTER_LOST => lost,
            LEASEHOLD_COUNTER_RELEASED_LATE => released_late,
            _ => return Err(bad(format!("there is no counter {counter}"))),
        })
    })
}

/// What leasehold_client_metrics() found. It does not change any more. Free it with
/// leasehold_metrics_free().
pub struct leasehold_metrics {
    text: CBytes,
}

impl Handled for leasehold_metrics {}

/// Takes down all that was counted and measured since the client was opened, and what is so now, as
/// text that Prometheus reads: leasehold_metrics_text(). A program answers with it where it serves its
/// own metrics, under the type "text/plain; version=0.0.4". It still answers when the client is closed;
/// a forked child begins with nothing. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_client_metrics(
    client: *const leasehold_client,
    metrics: *mut *mut leasehold_metrics,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::open(error, "metrics", metrics, || {
        let text = CBytes::new(table::get(client)?.client.metrics_text());
        Ok(leasehold_metrics { text })
    })
}

/// The text, in Prometheus' format 0.0.4, and its length, unless `length` is NULL. Borrowed. Any
/// thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_metrics_text(
    metrics: *const leasehold_metrics,
    length: *mut usize,
) -> *const c_char {
    boundary::string(metrics, length, |metrics| &metrics.text)
}

/// Frees metrics and their text. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_metrics_free(metrics: *mut leasehold_metrics) {
    boundary::free(metrics, drop);
}

/// The store as people may see it, without user and password. Borrowed. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_client_store(client: *const leasehold_client) -> *const c_char {
    boundary::string(client, std::ptr::null_mut(), |client| &client.store)
}

/// Closes the client. Every lease becomes invalid at once and is released. Calls that wait return
/// LEASEHOLD_ERR_CLOSED within 200 ms, or by io_timeout if their request is under way. The thread
/// that renews has ended when this returns (a log function cannot wait for it).
///
/// It lasts close_timeout at most, or io_timeout if a request under way is not answered in that
/// time. Locks that were not released by then are free by their ttl. Closing twice does no harm.
///
/// The handle, and those of its locks, leases and subscriptions, still have to be freed. Without
/// closing, a program may just exit: that does no I/O, and the ttl frees its locks. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_client_close(
    client: *mut leasehold_client,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::call(error, || Ok(table::get(client)?.client.close()?))
}

/// As leasehold_client_close(), with another limit than close_timeout. Errors:
/// LEASEHOLD_ERR_BAD_ARGUMENT for a negative one; then nothing is closed. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_client_close_within(
    client: *mut leasehold_client,
    timeout_ms: i64,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::call(error, || {
        Ok(table::get(client)?.client.close_within(span("close_timeout", timeout_ms)?)?)
    })
}

/// Closes the client as leasehold_client_close() does, and frees its handle. Locks, leases and
/// subscriptions that came from it keep their handles, which are to be freed too; their calls
/// return LEASEHOLD_ERR_CLOSED. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_client_free(client: *mut leasehold_client) {
    boundary::free(client, |client| drop(client.client.close()));
}
