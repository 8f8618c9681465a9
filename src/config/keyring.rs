//! Credentials that change while the program runs: who asks for them, when, and which are the newest.
//!
//! One thread asks, so that no caller waits for longer than its deadline, whatever the program's callback
//! or command does. It asks when a login needs credentials, and again before they end. Each login gets
//! the newest; what is logged in sees by its [`Login`] that there are newer ones.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use super::credentials::{Credentials, Endpoint, Provider};
use super::secret::Secret;
use super::secret_command::SecretCommand;
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::jitter::Jitter;
use crate::said::say;
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::system::Thread;

/// After a failure, the next attempt comes after an eighth of the time that is left, ...
const LEAST_PAUSE: Duration = Duration::from_millis(100);
/// ... and no later than this, also once they have ended.
const MOST_PAUSE: Duration = Duration::from_secs(15);

/// What a login was made with.
pub(crate) struct Login {
    endpoint: Endpoint,
    pub(crate) user: Option<String>,
    pub(crate) secret: Secret,
    ends: Option<(Moment, SystemTime)>,
    /// When they were asked for.
    pub(super) asked: Moment,
    retires: bool,
    fate: Arc<Fate>,
}

/// What became of credentials. Those that a program returned twice share it, though their ends differ.
#[derive(Default)]
struct Fate {
    /// There are newer ones.
    is_replaced: AtomicBool,
    /// A connection that logged in with them is to make way for a new one.
    is_retired: AtomicBool,
}

impl Login {
    pub(crate) fn is_replaced(&self) -> bool {
        self.fate.is_replaced.load(Ordering::Acquire)
    }

    #[cfg(any(feature = "mysql", feature = "postgres"))]
    pub(crate) fn is_retired(&self) -> bool {
        self.fate.is_retired.load(Ordering::Acquire)
    }

    /// How often whoever keeps a connection for long has to look whether there are newer ones.
    pub(crate) fn look_every(&self) -> Duration {
        let life = self.ends.map_or(Duration::MAX, |(ends, _)| ends.since(self.asked));
        (life / 16).max(Duration::from_millis(10))
    }

    fn has_ended(&self, now: Moment) -> bool {
        self.ends.is_some_and(|(ends, _)| now >= ends)
    }

    pub(super) fn is_same(&self, other: &Login) -> bool {
        self.user == other.user && self.secret == other.secret
    }
}

/// Who is asked.
pub(super) enum Source {
    Callback(Provider),
    Command(SecretCommand),
}

/// The newest credentials for the servers of a client, or of one URL of several.
#[derive(Clone)]
pub(crate) struct Keyring(Arc<Shared>);

struct Shared {
    source: Source,
    state: Mutex<State>,
    /// Something was asked for, or the keyring was closed.
    wanted: Condvar,
    /// An answer has come, or the thread has ended.
    answered: Condvar,
}

#[derive(Default)]
struct State {
    entries: BTreeMap<Endpoint, Entry>,
    thread: Option<Thread>,
    has_ended: bool,
    is_closed: bool,
}

#[derive(Default)]
struct Entry {
    newest: Option<Arc<Login>>,
    /// Why the last attempt has failed.
    failed: Option<Error>,
    is_wanted: bool,
    waiting: usize,
    /// So many attempts were begun, and so many are over.
    begun: u64,
    ended: u64,
    /// Nobody has waited for the answer any more: without an end, one login may use it.
    is_unclaimed: bool,
    /// When they are asked for again though nobody wants them.
    due: Option<Moment>,
}

impl Keyring {
    pub(super) fn new(source: Source) -> Keyring {
        let (state, wanted, answered) = Default::default();
        Keyring(Arc::new(Shared { source, state, wanted, answered }))
    }

    /// The newest credentials, by a deadline. `refused` are those that the server does not accept.
    pub(super) fn get(
        &self,
        endpoint: &Endpoint,
        refused: Option<&Arc<Login>>,
        deadline: Deadline,
    ) -> Result<Arc<Login>, Error> {
        let shared = &*self.0;
        let mut state = shared.state.lock();
        let entry = state.entries.entry(endpoint.clone()).or_default();
        let (begun, ended) = (entry.begun, entry.ended);
        loop {
            if state.is_closed {
                return Err(Error::bare(ErrorKind::Closed));
            }
            let entry = state.entries.entry(endpoint.clone()).or_default();
            let now = Moment::now();
            if let Some(newest) = entry.newest.as_ref().filter(|newest| !newest.has_ended(now)) {
                let is_refused = refused.is_some_and(|refused| Arc::ptr_eq(refused, newest));
                // Without an end, a login gets what was asked for since it began.
                let is_fresh = newest.ends.is_some() || entry.ended > begun || entry.is_unclaimed;
                if is_fresh && !is_refused {
                    let newest = Arc::clone(newest);
                    entry.is_unclaimed = false;
                    return Ok(newest);
                }
            }
            if entry.ended > ended
                && let Some(error) = &entry.failed
            {
                return Err(entry.explain(error, now));
            }
            let is_under_way = entry.begun > entry.ended;
            let (left, newest) = (deadline.left(), entry.newest.as_ref());
            if left.is_zero() {
                let late = shared.source.late(endpoint);
                let is_over = newest.is_some_and(|newest| newest.has_ended(now));
                return Err(if is_over { entry.explain(&late, now) } else { late });
            }
            // What is under way may have been asked before a password was changed.
            entry.is_wanted |= !is_under_way
                || (entry.begun == begun && newest.is_none_or(|newest| newest.ends.is_none()));
            entry.waiting += 1;
            self.start(&mut state)?;
            shared.wanted.notify_one();
            state = shared.answered.wait_for(state, left);
            if let Some(entry) = state.entries.get_mut(endpoint) {
                entry.waiting -= 1;
            }
        }
    }

    fn start(&self, state: &mut MutexGuard<'_, State>) -> Result<(), Error> {
        if state.thread.is_none() {
            let shared = Arc::clone(&self.0);
            let thread = Thread::start(c"leasehold-login", move || shared.go_on());
            state.thread = Some(thread.map_err(|error| {
                Error::new(ErrorKind::Exhausted, format!("the thread for credentials: {error}"))
            })?);
        }
        Ok(())
    }

    /// Newer credentials than those, if there are any.
    pub(super) fn newer(&self, login: &Login) -> Option<Arc<Login>> {
        let state = self.0.state.lock();
        let newest = state.entries.get(&login.endpoint)?.newest.as_ref()?;
        (!newest.is_same(login)).then(|| Arc::clone(newest))
    }

    /// The server does not accept them.
    pub(super) fn refused(&self, login: &Arc<Login>) {
        let mut state = self.0.state.lock();
        if let Some(entry) = state.entries.get_mut(&login.endpoint)
            && entry.newest.as_ref().is_some_and(|newest| newest.is_same(login))
        {
            entry.is_wanted = true;
            self.0.wanted.notify_one();
        }
    }

    /// Nothing is asked for any more.
    pub(super) fn close(&self) {
        self.0.state.lock().is_closed = true;
        self.0.wanted.notify_all();
        self.0.answered.notify_all();
    }

    /// Waits for the thread, unless the program's callback keeps it for longer than until a deadline.
    pub(super) fn join(&self, deadline: Deadline) {
        let shared = &*self.0;
        let mut state = shared.state.lock();
        while state.thread.is_some() && !state.has_ended && !deadline.has_passed() {
            state = shared.answered.wait_for(state, deadline.left());
        }
        // One that is kept goes by itself when it is let go.
        let thread = if state.has_ended { state.thread.take() } else { None };
        drop(state);
        if let Some(thread) = thread {
            thread.join();
        }
    }
}

/// By which configurations are compared: two that differ in this are of two clients.
impl PartialEq for Keyring {
    fn eq(&self, other: &Keyring) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Keyring {}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keyring")
    }
}

impl Shared {
    /// What the thread does.
    fn go_on(&self) {
        let mut jitter = Jitter::seeded(Moment::now().as_nanos());
        let mut state = self.state.lock();
        while !state.is_closed {
            let now = Moment::now();
            let due = |entry: &Entry| match entry.is_wanted {
                true => Moment::ZERO,
                false => entry.due.unwrap_or(Moment::NEVER),
            };
            let next = state.entries.iter_mut().min_by_key(|(_, entry)| due(entry));
            let until = next.as_ref().map_or(Moment::NEVER, |(_, entry)| due(entry));
            let Some((endpoint, entry)) = next.filter(|_| until <= now) else {
                state = match until {
                    Moment::NEVER => self.wanted.wait(state),
                    until => self.wanted.wait_for(state, until.since(now)),
                };
                continue;
            };
            (entry.is_wanted, entry.begun) = (false, entry.begun + 1);
            let endpoint = endpoint.clone();
            drop(state);
            let asked = Moment::now();
            let answer = self.source.ask(&endpoint);
            let answer = answer.and_then(|found| found.into_login(&endpoint, &self.source, asked));
            state = self.state.lock();
            if let Some(entry) = state.entries.get_mut(&endpoint) {
                // Else a call tells it.
                if let (Err(error), 0) = (&answer, entry.waiting) {
                    say!(
                        Warn,
                        "credentials-failed",
                        server = &*endpoint.to_string(),
                        error = *error
                    );
                }
                entry.take(answer, &mut jitter);
            }
            self.answered.notify_all();
        }
        state.has_ended = true;
        self.answered.notify_all();
    }
}

impl Entry {
    fn take(&mut self, answer: Result<Login, Error>, jitter: &mut Jitter) {
        let now = Moment::now();
        self.ended = self.begun;
        let left = |login: &Login| login.ends.map(|(ends, _)| ends.since(now));
        match answer {
            Ok(login) => {
                let span = left(&login).map(|left| jitter.around(left * 3 / 4));
                self.due = span.map(|span| now.plus(span));
                self.is_unclaimed = self.waiting == 0;
                self.failed = None;
                let (before, mut login) = (self.newest.take(), login);
                if let Some(before) = before {
                    if before.is_same(&login) {
                        login.fate = Arc::clone(&before.fate);
                    } else {
                        let retires = login.retires || before.user != login.user;
                        before.fate.is_retired.store(retires, Ordering::Release);
                        before.fate.is_replaced.store(true, Ordering::Release);
                    }
                }
                self.newest = Some(Arc::new(login));
            }
            Err(error) => {
                if let Some(left) = self.newest.as_ref().and_then(|newest| left(newest)) {
                    let pause = if left.is_zero() { MOST_PAUSE } else { left / 8 };
                    let pause = jitter.around(pause.clamp(LEAST_PAUSE, MOST_PAUSE));
                    self.due = Some(now.plus(pause));
                }
                self.failed = Some(error);
            }
        }
    }

    /// An error, with what became of the credentials that there were.
    fn explain(&self, error: &Error, now: Moment) -> Error {
        let ended = self.newest.as_ref().filter(|newest| newest.has_ended(now));
        match ended.and_then(|newest| newest.ends) {
            Some((_, end)) => Error::mended(
                ErrorKind::Auth,
                format!(
                    "the last secret ended at {}, and since then {}",
                    shown(end),
                    error.detail()
                ),
            ),
            None => error.clone(),
        }
    }
}

impl Source {
    fn ask(&self, endpoint: &Endpoint) -> Result<Credentials, Error> {
        match self {
            Source::Command(command) => command.run().map(Credentials::new),
            Source::Callback(provider) => {
                // What it was called with stays whole, whatever it panics in.
                match catch_unwind(AssertUnwindSafe(|| provider.ask(endpoint))) {
                    Ok(answer) => answer.map_err(|error| self.failed(endpoint, "failed", &error)),
                    Err(panic) => Err(self.failed(endpoint, "panicked", message(&*panic))),
                }
            }
        }
    }

    fn name(&self) -> String {
        match self {
            Source::Callback(_) => "the credentials callback".to_owned(),
            Source::Command(command) => format!("the password command {}", command.program()),
        }
    }

    fn failed(&self, endpoint: &Endpoint, what: &str, why: &str) -> Error {
        let name = self.name();
        Error::mended(ErrorKind::Auth, format!("{name} {what} for {endpoint}: {why}"))
    }

    fn late(&self, endpoint: &Endpoint) -> Error {
        let what = match self {
            Source::Callback(_) => "has not returned",
            Source::Command(_) => "has not ended",
        };
        let name = self.name();
        Error::mended(
            ErrorKind::NoAnswer,
            format!("{name} {what} for {endpoint} yet: make it faster, or raise io_timeout"),
        )
    }
}

impl Credentials {
    fn into_login(
        self,
        endpoint: &Endpoint,
        source: &Source,
        asked: Moment,
    ) -> Result<Login, Error> {
        let Credentials { user, secret, until, retires } = self;
        let wrong = |what: &str| {
            let name = source.name();
            Err(Error::mended(ErrorKind::Auth, format!("{name} returned {what} for {endpoint}")))
        };
        let has_zero = user.iter().any(|user| user.contains('\0')) || secret.0.contains('\0');
        if secret.0.is_empty() {
            return wrong("an empty secret");
        }
        if has_zero || user.as_ref().is_some_and(String::is_empty) {
            return wrong("a user or a secret that no server allows (empty, or with a zero byte)");
        }
        let ends = match until {
            None => None,
            Some(end) => match end.duration_since(SystemTime::now()) {
                Ok(left) if !left.is_zero() => Some((Moment::now().plus(left), end)),
                _ => return wrong(&format!("a secret that ended at {}", shown(end))),
            },
        };
        let (endpoint, fate) = (endpoint.clone(), Arc::default());
        Ok(Login { endpoint, user, secret, ends, asked, retires, fate })
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it panicked")
}

/// A time as everybody reads it, such as `2026-11-28T20:31:07Z`.
fn shown(time: SystemTime) -> String {
    let Ok(since) = time.duration_since(SystemTime::UNIX_EPOCH) else {
        return "a time before 1970".to_owned();
    };
    let (days, rest) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    // From March on, with the leap day at the end of a year: of 400 years each has the same days.
    let (era, day) = ((days + 719_468) / 146_097, (days + 719_468) % 146_097);
    let of_era = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * of_era + of_era / 4 - of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_shown_as_everybody_reads_it() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_795_897_867, "2026-11-28T20:31:07Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(shown(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }
}
