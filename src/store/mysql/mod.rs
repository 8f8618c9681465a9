//! The MySQL and MariaDB store: five tables, and a connection for each request under way. What its
//! promises rest on is in `docs/protocol.md`.

mod admin;
mod clients;
mod dial;
#[cfg(feature = "examine")]
pub(crate) mod examine;
mod explain;
mod fault;
mod login;
mod renewals;
mod requests;
mod statements;
mod waiters;
mod wire;

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use sha2::{Digest, Sha256};

use self::dial::{Dialer, Purpose};
use self::requests::State;
use self::statements::{SCHEMA, Values, packet};
use self::waiters::Life;
use self::wire::{Answers, Lent, Refusal, Said, Wire, unexpected};
use crate::clock::{Deadline, Moment};
use crate::config::{Config, MysqlConfig};
use crate::error::{Error, ErrorKind};
use crate::jitter::Jitter;
use crate::said::say;
use crate::store::net::pool::{Pool, Pools};
use crate::store::net::seat;
use crate::store::{Abilities, By, Failure, Identity, Lane, Outcome, Request, Store};
use crate::sync::Mutex;
use crate::token::Token;

/// Between two attempts of one request, where others were faster or the primary moves.
const BREATH: Duration = Duration::from_millis(10);
/// So long a request may take that is one of many.
const LEAST_SHARE: Duration = Duration::from_millis(250);
/// One give in so many removes rows that nobody uses any more.
const SWEEP_EVERY: u32 = 64;
/// The longest key. Of a name that is as long or longer, the key is the beginning and a hash, which has
/// just this length.
const KEY: usize = 2048;
const HASH: usize = 32;

pub(crate) struct MysqlStore {
    dialer: Dialer,
    pool: Pool<Wire>,
    prefix: Vec<u8>,
    life: Life,
    /// Counts gives, from anywhere: many programs give only once.
    gives: AtomicU32,
    jitter: Mutex<Jitter>,
    /// Until when a lock that is free, and that nobody waits for, may be one that was waited for lately.
    crowded: Mutex<Deadline>,
    /// Who the clients are can neither be written nor read here.
    is_anonymous: AtomicBool,
}

/// Why a request has no answer yet.
enum Trouble {
    Failed(Failure),
    /// The server rolled it back for the sake of others, or was not the primary: once more. This is how
    /// it ends where there is no time for that.
    Passing(Failure),
}

impl Trouble {
    fn map(self, change: impl FnOnce(Failure) -> Failure) -> Trouble {
        match self {
            Trouble::Failed(failure) => Trouble::Failed(change(failure)),
            Trouble::Passing(failure) => Trouble::Passing(change(failure)),
        }
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Trouble {
        Trouble::Failed(failure)
    }
}

impl MysqlStore {
    pub(crate) fn new(mysql: &MysqlConfig, config: &Config) -> Result<MysqlStore, Error> {
        let seed = Token::random()?.seed();
        Ok(MysqlStore {
            dialer: Dialer::new(mysql, config.io_timeout)?,
            pool: Pools::new(config.pool).make()?,
            prefix: config.prefix.clone(),
            life: Life::new(config.claim_window),
            gives: AtomicU32::new((seed % u64::from(SWEEP_EVERY)) as u32),
            jitter: Mutex::new(Jitter::seeded(seed)),
            crowded: Mutex::new(Deadline::after(Duration::ZERO)),
            is_anonymous: AtomicBool::new(false),
        })
    }

    fn key<'a>(&self, name: &'a [u8]) -> Cow<'a, [u8]> {
        let whole = match &*self.prefix {
            [] => Cow::Borrowed(name),
            prefix => Cow::Owned([prefix, name].concat()),
        };
        if whole.len() < KEY {
            return whole;
        }
        Cow::Owned([&whole[..KEY - HASH], &*Sha256::digest(&whole)].concat())
    }

    /// Statements that change nothing, and what was said to them.
    fn read(&self, lent: &mut Lent<'_>, text: &str, by: By) -> Result<Vec<Said>, Trouble> {
        let said = self.change(lent, text, by);
        // Nobody has to undo them.
        said.map(|(_, said)| said)
            .map_err(|trouble| trouble.map(|failure| Failure::not_done(failure.error)))
    }

    /// Statements that change something, the moment before they were sent, and what was said to them.
    fn change(
        &self,
        lent: &mut Lent<'_>,
        text: &str,
        by: By,
    ) -> Result<(Moment, Vec<Said>), Trouble> {
        let (sent, (said, refused)) = self.exchange(lent, text, by, true)?;
        let Some(Refusal { code, error }) = refused else { return Ok((sent, said)) };
        let has_moved = error.kind() == ErrorKind::ReadOnly && self.dialer.may_move();
        let is_passing = fault::is_passing(code) || has_moved;
        // Outside of a transaction each statement stays that was carried out.
        let is_kept = !text.starts_with(statements::BEGIN)
            || text.split(';').take(said.len()).any(|one| one.starts_with(statements::COMMIT));
        let is_begun = is_kept && said.iter().any(|said| said.changed > 0);
        let is_unknown = is_begun || !is_passing && fault::is_unknown(code);
        let failure = Failure { error, sent: is_unknown.then_some(sent) };
        Err(if is_passing { Trouble::Passing(failure) } else { Trouble::Failed(failure) })
    }

    /// One round trip, and those that explain why it was refused, where that is asked for. Of statements
    /// that were refused nothing is left open.
    fn exchange(
        &self,
        lent: &mut Lent<'_>,
        text: &str,
        by: By,
        explains: bool,
    ) -> Result<(Moment, Answers), Failure> {
        let (sent, mut answers) = self.send_checked(lent, text, by)?;
        let Some(wire) = &mut lent.wire else { return Err(Failure::not_done(none())) };
        if let Ok((_, Some(refusal))) = &mut answers
            && explains
            && !fault::is_passing(refusal.code)
            && !fault::is_unknown(refusal.code)
        {
            refusal.error = explain::explain(wire, refusal, text, by.done);
        }
        if answers.as_ref().is_err_and(|error| error.kind() == ErrorKind::NoAnswer) {
            self.dialer.leave(wire.server, sent);
        }
        let is_spent = match &answers {
            Ok((_, None)) => false,
            // Not each error undoes what stands before it in a transaction.
            Ok((_, Some(refusal))) if fault::is_passing(refusal.code) => {
                !wire.ask("ROLLBACK", by.done).is_ok_and(|(_, refused)| refused.is_none())
            }
            // A server that was the primary hangs on to its sessions.
            Ok((_, Some(_))) | Err(_) => true,
        };
        if is_spent {
            lent.wire = None;
        }
        answers.map(|answers| (sent, answers)).map_err(|error| Failure::unknown(error, sent))
    }

    /// One round trip. A connection that finds another version of the tables makes way for a new one, which
    /// says what is wrong.
    fn send_checked(
        &self,
        lent: &mut Lent<'_>,
        text: &str,
        by: By,
    ) -> Result<(Moment, Result<Answers, Error>), Failure> {
        let dial = || self.dialer.dial(Purpose::Locks, by.connect);
        loop {
            let now = Moment::now();
            let sent = seat::send(lent, by.done, dial, |wire| wire.query_checked(text, now))?;
            let Some(wire) = &mut lent.wire else { return Err(Failure::not_done(none())) };
            match wire.answers_checked(sent, by.done).transpose() {
                Some(answers) => return Ok((sent, answers)),
                None => lent.wire = None,
            }
        }
    }

    /// A request, again and again until the deadline where others were in the way.
    fn insist<T>(
        &self,
        by: By,
        mut attempt: impl FnMut() -> Result<T, Trouble>,
    ) -> Result<T, Failure> {
        let mut sent = None;
        loop {
            let (mut failure, is_passing) = match attempt() {
                Ok(done) => return Ok(done),
                Err(Trouble::Failed(failure)) => (failure, false),
                Err(Trouble::Passing(failure)) => (failure, true),
            };
            // What an earlier attempt may have left behind is not undone by one that did nothing.
            failure.sent = sent.or(failure.sent);
            sent = failure.sent;
            if !is_passing || self.breathe(by).is_err() {
                return Err(failure);
            }
        }
    }

    /// An error if there is no time for another attempt.
    fn breathe(&self, by: By) -> Result<(), Trouble> {
        let pause = self.jitter.lock().up_to(BREATH);
        if by.done.left() <= pause {
            let others = Error::new(ErrorKind::Unavailable, "others were faster");
            return Err(Failure::not_done(others).into());
        }
        std::thread::sleep(pause);
        Ok(())
    }

    /// Statements that only look, or matter to nobody.
    fn query(&self, lane: Lane, text: &str, deadline: Deadline) -> Result<Vec<Said>, Error> {
        let by = By::from(deadline);
        let said = self
            .pool
            .on_connection(lane, deadline, |lent| self.insist(by, || self.read(lent, text, by)));
        said.map_err(|failure| failure.error)
    }

    /// Now and then, removes some rows that nobody uses any more. It does not matter how that ends.
    fn sweep(&self, lent: &mut Lent<'_>, by: By) {
        let count = self.gives.fetch_add(1, Ordering::Relaxed);
        if count.is_multiple_of(SWEEP_EVERY)
            && let Err(Trouble::Failed(failure) | Trouble::Passing(failure)) =
                self.read(lent, &packet(&[statements::SWEEP], &Values::default()), by)
        {
            say!(Debug, "sweep-failed", error = failure.error);
        }
    }

    fn see(&self, name: &[u8], lane: Lane, deadline: Deadline) -> Result<State, Error> {
        let key = self.key(name);
        let text = packet(&[statements::STATE], &Values { name: &key, ..Values::default() });
        let said = self.query(lane, &text, deadline)?;
        State::read(said.last()).ok_or_else(|| unexpected("nothing"))
    }
}

impl Store for MysqlStore {
    fn run(&self, lane: Lane, requests: &[Request<'_>], deadline: Deadline) -> Vec<Outcome> {
        let by = lane.by(deadline);
        let mut outcomes = vec![None; requests.len()];
        let done = self.pool.on_connection(lane, by.connect, |lent| {
            // The ticket that a give has drawn for the take behind it.
            let mut drawn = None;
            self.extend_together(lent, requests, &mut outcomes, by)?;
            for (at, outcome) in outcomes.iter_mut().enumerate() {
                if outcome.is_some() {
                    continue;
                }
                let (request, next) = (&requests[at], requests.get(at + 1));
                // A row that another session keeps costs the keeper's other requests little more than
                // their share.
                let done = match lane {
                    Lane::Keeper => {
                        let share = deadline.share(requests.len() - at);
                        share.max(Deadline::after(LEAST_SHARE)).min(deadline)
                    }
                    Lane::Caller | Lane::Give(_) => deadline,
                };
                let by = By { done, ..by };
                let carried_out =
                    self.insist(by, || self.carry_out(lent, request, next, &mut drawn, by));
                *outcome = Some(unless_full(carried_out)?);
            }
            if requests.iter().any(|request| matches!(request, Request::Give { .. })) {
                self.sweep(lent, by);
            }
            Ok(())
        });
        let failure = done.err().unwrap_or_else(|| Failure::not_done(none()));
        outcomes.into_iter().map(|one| one.unwrap_or_else(|| Err(failure.clone()))).collect()
    }

    fn free_in(&self, name: &[u8], deadline: Deadline) -> Result<Duration, Error> {
        let state = self.see(name, Lane::Caller, deadline)?;
        Ok(state.lease.as_ref().map_or(Duration::ZERO, |lease| state.left(lease)))
    }

    fn is_unawaited(&self, grant: &Identity, lane: Lane, deadline: Deadline) -> bool {
        let is_it = |state: State| {
            let is_mine = |lease| state.is_of(lease, Some(grant.token));
            state.lease.as_ref().is_some_and(is_mine) && state.waiting == 0
        };
        self.see(&grant.name, lane, deadline).is_ok_and(is_it)
    }

    fn ping(&self, deadline: Deadline) -> Result<(), Error> {
        self.see(b"", Lane::Caller, deadline).map(drop)
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            place_kept: Some(self.life.place_kept),
            longest_pause: waiters::LONGEST,
            schema: Some(SCHEMA),
            ..Abilities::default()
        }
    }
}

/// An outcome, but for that of a server which is full: another connection may be there.
fn unless_full<T>(outcome: Result<T, Failure>) -> Result<Result<T, Failure>, Failure> {
    match outcome {
        Err(failure) if failure.sent.is_none() && failure.error.kind() == ErrorKind::Exhausted => {
            Err(failure)
        }
        outcome => Ok(outcome),
    }
}

fn none() -> Error {
    Error::bare(ErrorKind::Refused)
}
