//! The PostgreSQL store: one table, and a connection for each request under way. What its promises
//! rest on is in `docs/protocol.md`.

mod admin;
mod clients;
mod dial;
#[cfg(feature = "examine")]
pub(crate) mod examine;
mod explain;
mod fault;
mod listener;
mod login;
mod requests;
mod statements;
mod wire;

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use sha2::{Digest, Sha256};

use self::dial::{Dialer, Purpose};
use self::explain::Need;
use self::requests::read;
use self::statements::{SCHEMA, Statement};
use self::wire::{Answers, Lent, Refusal, Row, Value, Wire};
use crate::clock::{Deadline, Moment};
use crate::config::{Config, PostgresConfig};
use crate::error::{Error, ErrorKind};
use crate::jitter::Jitter;
use crate::said::say;
use crate::store::net::pool::{Pool, Pools};
use crate::store::net::seat::{self, Line};
use crate::store::{
    Abilities, Answer, By, Failure, Identity, Lane, Listener, Outcome, Reply, Request, ServerId,
    Store,
};
use crate::sync::Mutex;
use crate::token::Token;

/// Between two attempts of one call, where others were faster or the primary moves.
const BREATH: Duration = Duration::from_millis(10);
/// One give in so many removes rows that nobody uses any more.
const SWEEP_EVERY: u32 = 64;
/// The longest key that an index takes has 2,704 bytes. Of longer names than this, the key is the
/// beginning and a hash, which is longer.
const LONGEST_KEY: usize = 1900;

pub(crate) struct PostgresStore {
    dialer: Arc<Dialer>,
    pool: Pool<Wire>,
    listener: listener::Listener,
    prefix: Vec<u8>,
    claim_window: Duration,
    /// Counts gives, from anywhere: many programs give only once.
    gives: AtomicU32,
    /// Names for which somebody was seen to wait, by their hashes: the everyday statements would be
    /// sent in vain.
    crowded: Mutex<HashSet<u64>>,
    /// Who the clients are can neither be written nor read here.
    is_anonymous: AtomicBool,
}

impl PostgresStore {
    pub(crate) fn new(postgres: &PostgresConfig, config: &Config) -> Result<PostgresStore, Error> {
        let Config { prefix, io_timeout, claim_window, .. } = config;
        let dialer = Arc::new(Dialer::new(postgres, *io_timeout)?);
        let begin = Token::random()?.seed() % u64::from(SWEEP_EVERY);
        Ok(PostgresStore {
            listener: listener::Listener::new(Arc::clone(&dialer), *io_timeout, prefix.clone()),
            dialer,
            pool: Pools::new(config.pool).make()?,
            prefix: prefix.clone(),
            claim_window: *claim_window,
            gives: AtomicU32::new(begin as u32),
            crowded: Mutex::default(),
            is_anonymous: AtomicBool::new(false),
        })
    }

    fn key<'a>(&self, name: &'a [u8]) -> Cow<'a, [u8]> {
        if is_told(&self.prefix, name) {
            return match &*self.prefix {
                [] => Cow::Borrowed(name),
                prefix => Cow::Owned([prefix, name].concat()),
            };
        }
        let whole = [&self.prefix, name].concat();
        Cow::Owned([&whole[..LONGEST_KEY], &*Sha256::digest(&whole)].concat())
    }

    /// Writes and sends on the seat's connection, or on a new one. Returns the moment before.
    fn send(
        &self,
        lent: &mut Lent<'_>,
        by: By,
        write: impl Fn(&mut Wire) -> Result<(), Error>,
    ) -> Result<Moment, Failure> {
        let dial = || self.dialer.dial(Purpose::Locks, by.connect, &|_| Ok(()));
        seat::send(lent, by.done, dial, write)
    }

    /// One attempt at the requests without an outcome. Those that the server rolled back for a reason
    /// that passes are left without, and the reason is returned; and those that are no everyday case,
    /// of which the first attempt is made in vain.
    fn attempt(
        &self,
        lent: &mut Lent<'_>,
        requests: &[Request<'_>],
        outcomes: &mut [Option<Outcome>],
        by: By,
        is_first: bool,
    ) -> Result<Left, Failure> {
        // Noted once: another thread may see meanwhile that somebody waits.
        let is_everyday: Vec<bool> =
            requests.iter().map(|request| is_first && self.is_everyday(request)).collect();
        let open: Vec<usize> = (0..requests.len()).filter(|at| outcomes[*at].is_none()).collect();
        // Extensions that follow one another wait for the disk together, unless one of them was
        // refused.
        let is_extend = |at: &usize| matches!(requests[*at], Request::Extend { .. });
        let groups: Vec<&[usize]> =
            open.chunk_by(|one, next| is_first && is_extend(one) && is_extend(next)).collect();
        let now = Moment::now();
        let sent = self.send(lent, by, |wire| {
            groups.iter().try_for_each(|group| {
                wire.settle_checked(now)?;
                group
                    .iter()
                    .try_for_each(|at| self.write(wire, &requests[*at], is_everyday[*at]))?;
                wire.sync();
                Ok(())
            })
        })?;
        let (mut rest, mut strange) = (Vec::new(), Vec::new());
        let (mut left, mut is_spent, mut broken) = (Left::Nothing, false, None);
        for group in groups {
            let preface = lent.wire.as_ref().map_or(0, |wire| wire.preface);
            let count = preface + group.len();
            match broken.clone().map_or_else(|| self.answers(lent, count, by.done), Err) {
                Err(error) => {
                    broken = Some(error.clone());
                    for at in group {
                        outcomes[*at] = Some(Err(Failure::unknown(error.clone(), sent)));
                    }
                }
                Ok((rows, None)) => {
                    lent.wire.iter_mut().for_each(|wire| wire.was_checked(sent));
                    let rows = rows.iter().skip(preface).map(Option::as_ref);
                    for (at, row) in group.iter().zip(rows) {
                        match (&requests[*at], row) {
                            (_, None) if is_everyday[*at] => left = Left::Unusual,
                            (Request::Give { .. }, None) => rest.push(*at),
                            (request, row) => {
                                let outcome = read(lent, request, row, sent);
                                if outcome.is_err() {
                                    strange.push(*at);
                                }
                                outcomes[*at] = Some(outcome);
                                self.note(request, row);
                            }
                        }
                    }
                }
                Ok((_, Some(Refusal { error, is_doubt: true, .. }))) => {
                    for at in group {
                        outcomes[*at] = Some(Err(Failure::unknown(error.clone(), sent)));
                    }
                }
                Ok((rows, Some(Refusal { error, code, .. })))
                    if lent.wire.as_ref().is_some_and(|it| it.is_outdated(rows.len(), &code)) =>
                {
                    // A new connection is told what is wrong.
                    is_spent = true;
                    left = Left::Refused(error);
                }
                Ok((_, Some(Refusal { error, code, .. }))) => {
                    let is_forgotten = fault::is_forgotten(&code);
                    let is_passing = is_forgotten || fault::is_passing(&code);
                    let has_moved = error.kind() == ErrorKind::ReadOnly && self.dialer.may_move();
                    // A statement that was not accepted is not prepared either.
                    is_spent |= is_forgotten || !is_passing;
                    if has_moved || group.len() > 1 || is_passing {
                        left = Left::Refused(error);
                    } else {
                        strange.push(group[0]);
                        outcomes[group[0]] = Some(Err(Failure::not_done(error)));
                    }
                }
            }
        }
        for at in rest {
            let outcome = self.give_rest(lent, &requests[at], by.done);
            outcomes[at] = Some(outcome.map_err(|error| Failure::unknown(error, sent)));
        }
        // Last of what counts: a question that gets no answer costs the connection.
        for at in strange {
            if let Some(Err(failure)) = &mut outcomes[at] {
                let need = Need::Lock(&self.key(requests[at].name()));
                failure.error = explained(lent, failure.error.clone(), need, by.done);
            }
        }
        if is_spent {
            lent.wire = None;
        } else if requests.iter().any(|request| matches!(request, Request::Give { .. })) {
            self.sweep(lent, by.done);
        }
        Ok(left)
    }

    /// What a give has to do that found no lock of its own.
    fn give_rest(
        &self,
        lent: &mut Lent<'_>,
        request: &Request<'_>,
        deadline: Deadline,
    ) -> Result<Answer, Error> {
        let Request::Give { name, token, fence, .. } = *request else { return Err(none()) };
        let (key, token) = (self.key(name), Value::Token(Some(token)));
        let values = [Value::Bytes(&key), token, Value::Number(fence)];
        self.execute(lent, Statement::GiveRest, &values, deadline)?;
        let by = lent.wire.as_ref().map_or_else(ServerId::default, |wire| wire.server);
        Ok(Answer { reply: Reply::NotMine, sent: Moment::now(), server: 0, by, again: None })
    }

    /// Now and then, removes some rows that nobody uses any more. It does not matter how that ends.
    fn sweep(&self, lent: &mut Lent<'_>, deadline: Deadline) {
        let count = self.gives.fetch_add(1, Ordering::Relaxed);
        if count.is_multiple_of(SWEEP_EVERY)
            && let Err(error) = self.execute(lent, Statement::Sweep, &[], deadline)
        {
            say!(Debug, "sweep-failed", error = error);
        }
    }

    fn see(&self, name: &[u8], lane: Lane, deadline: Deadline) -> Result<Option<Row>, Error> {
        let key = self.key(name);
        let look = (Statement::Look, &[Value::Bytes(&key)][..]);
        Ok(self.query(lane, &[look], Need::Look(Some(&key)), deadline)?.pop().flatten())
    }

    /// Statements that only look, or matter to nobody, together.
    fn query(
        &self,
        lane: Lane,
        calls: &[(Statement, &[Value<'_>])],
        need: Need<'_>,
        deadline: Deadline,
    ) -> Result<Vec<Option<Row>>, Error> {
        let told = self.transact(lane, deadline, (calls.len(), need), &|wire| {
            calls.iter().try_for_each(|(statement, values)| wire.call(*statement, values))
        });
        told.map_err(|refused| refused.failure.error)
    }

    /// So many statements in one transaction, and what they are for. Returns the last row of each.
    fn transact(
        &self,
        lane: Lane,
        deadline: Deadline,
        (count, need): (usize, Need<'_>),
        write: &dyn Fn(&mut Wire) -> Result<(), Error>,
    ) -> Result<Vec<Option<Row>>, Refused> {
        let mut code = String::new();
        let said = self.pool.on_connection(lane, deadline, |lent| {
            let sent = self.send(lent, deadline.into(), |wire| {
                wire.settle()?;
                write(wire)?;
                wire.sync();
                Ok(())
            })?;
            let preface = lent.wire.as_ref().map_or(0, |wire| wire.preface);
            match self.answers(lent, preface + count, deadline) {
                Ok((rows, None)) => Ok(rows.into_iter().skip(preface).collect()),
                Ok((_, Some(refusal))) => {
                    let sent = refusal.is_doubt.then_some(sent);
                    let error = explained(lent, refusal.error, need, deadline);
                    // A statement that could not be prepared is not there the next time.
                    lent.wire = None;
                    code = refusal.code;
                    Err(Failure { error, sent })
                }
                Err(error) => Err(Failure::unknown(error, sent)),
            }
        });
        said.map_err(|failure| Refused { code, failure })
    }

    /// What comes to the seat's connection up to the end of a transaction; after an error it has none.
    fn answers(
        &self,
        lent: &mut Lent<'_>,
        count: usize,
        deadline: Deadline,
    ) -> Result<Answers, Error> {
        let wire = lent.wire.as_mut().ok_or_else(none)?;
        let (since, server) = (Moment::now(), wire.server);
        let said = wire.answers(count, deadline);
        if let Err(error) = &said {
            lent.wire = None;
            if error.kind() == ErrorKind::NoAnswer {
                self.dialer.leave(server, since);
            }
        }
        said
    }

    /// One statement on the seat's connection.
    fn execute(
        &self,
        lent: &mut Lent<'_>,
        statement: Statement,
        values: &[Value<'_>],
        deadline: Deadline,
    ) -> Result<Option<Row>, Error> {
        let wire = lent.wire.as_mut().ok_or_else(none)?;
        wire.settle()?;
        let count = wire.preface + 1;
        wire.call(statement, values)?;
        wire.sync();
        let sent = wire.send(deadline).map_err(|(_, error)| error);
        let said = sent.and_then(|()| self.answers(lent, count, deadline)).and_then(
            |(mut rows, refused)| {
                refused.map_or_else(|| Ok(rows.pop().flatten()), |refusal| Err(refusal.error))
            },
        );
        if said.is_err() {
            lent.wire = None;
        }
        said
    }
}

/// Why there are no rows, with the server's code where it has said that.
struct Refused {
    code: String,
    failure: Failure,
}

impl Store for PostgresStore {
    fn run(&self, lane: Lane, requests: &[Request<'_>], deadline: Deadline) -> Vec<Outcome> {
        let (mut outcomes, mut is_first) = (vec![None; requests.len()], true);
        let mut jitter = Jitter::seeded(Moment::now().as_nanos());
        let failure = loop {
            let by = lane.by(deadline);
            let attempted = self.pool.on_connection(lane, by.connect, |lent| {
                self.attempt(lent, requests, &mut outcomes, by, is_first)
            });
            match attempted {
                Ok(Left::Nothing) => break Failure::not_done(none()),
                Ok(Left::Unusual) => {}
                Ok(Left::Refused(error)) => {
                    let is_held = error.kind() == ErrorKind::Unavailable;
                    let least = if is_held { self.dialer.row_wait } else { Duration::ZERO };
                    // The keeper's other leases fall due meanwhile, and it comes back to this one.
                    let comes_back = is_held && lane == Lane::Keeper && !is_first;
                    if deadline.left() <= least || comes_back {
                        break Failure::not_done(error);
                    }
                    std::thread::sleep(jitter.up_to(BREATH));
                }
                Err(failure) => break failure,
            }
            is_first = false;
        };
        outcomes.into_iter().map(|one| one.unwrap_or_else(|| Err(failure.clone()))).collect()
    }

    fn free_in(&self, name: &[u8], deadline: Deadline) -> Result<Duration, Error> {
        let row = self.see(name, Lane::Caller, deadline)?;
        let held = row.filter(|row| row.column(0).is_some()).and_then(|row| row.count(1));
        Ok(Duration::from_micros(held.unwrap_or(0)))
    }

    fn is_unawaited(&self, grant: &Identity, lane: Lane, deadline: Deadline) -> bool {
        // Who cannot be told asks again and again, and stands in no queue.
        if self.dialer.behind_pooler.load(Ordering::Relaxed) || !is_told(&self.prefix, &grant.name)
        {
            return false;
        }
        let seen = self.see(&grant.name, lane, deadline).ok().flatten();
        let is_it =
            |row: &Row| row.column(0) == Some(&grant.token.bits()) && row.count(4) == Some(0);
        seen.as_ref().is_some_and(is_it)
    }

    fn ping(&self, deadline: Deadline) -> Result<(), Error> {
        self.see(b"", Lane::Caller, deadline).map(drop)
    }

    fn abilities(&self) -> Abilities {
        Abilities {
            // Word of a hand-over comes as soon as it is committed, though its server may have stopped
            // waiting for the standbys: then it is gone with the server.
            claims_first: self.dialer.has_standbys.load(Ordering::Relaxed),
            schema: Some(SCHEMA),
            ..Abilities::default()
        }
    }

    fn listener(&self) -> Option<&dyn Listener> {
        Some(&self.listener)
    }
}

/// The error of a statement that was refused, or answered with what cannot be: with the right that is
/// missing, or the row that nobody of ours wrote, where the server tells that in time. Where it does not,
/// the connection ends: the next one who asks there would read that answer as the own.
fn explained(lent: &mut Lent<'_>, error: Error, need: Need<'_>, deadline: Deadline) -> Error {
    let is_strange = matches!(error.kind(), ErrorKind::Permission | ErrorKind::Protocol);
    let error = match &mut lent.wire {
        Some(wire) if is_strange => explain::explain(wire, error, need, deadline),
        _ => return error,
    };
    lent.wire.take_if(|wire| wire.is_owing());
    error
}

/// Why requests are left without an outcome.
enum Left {
    Nothing,
    Unusual,
    Refused(Error),
}

/// Whether a waiter can be told of the name: a longer one does not fit into a notice.
fn is_told(prefix: &[u8], name: &[u8]) -> bool {
    prefix.len() + name.len() <= LONGEST_KEY
}

fn none() -> Error {
    Error::bare(ErrorKind::Refused)
}
