//! One server: writing, reading, and skipping the replies that a connection owes, all by deadlines, on
//! the connection that [`single`](super::single) chose. The rules about owed replies stand at the head of
//! the [outbox](crate::store::outbox).

use std::borrow::Cow;
use std::sync::Arc;

use redis::{ServerErrorKind, Value};

use super::{Carried, Gives, Heard, Parcel};
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::said::say;
use crate::store::outbox::{GiveCopy, Outbox};
use crate::store::redis::dialect::{Batch, Call, RunId, Script, guard, lacks_lock};
use crate::store::redis::fault;
use crate::store::redis::sentinel::NEWS_EVERY;
use crate::store::redis::server_source::ServerSource;
use crate::store::redis::unread::{Subject, UnreadReply};
use crate::store::redis::wire::{Lent, Wire};
use crate::store::{By, Failure};
use crate::sync::Mutex;

pub(super) struct Peer {
    pub(super) source: Arc<dyn ServerSource>,
    pub(super) outbox: Arc<Outbox>,
    pub(super) gives: Arc<dyn Gives>,
    /// Those that were loaded into the server, and should be there still.
    pub(super) known_scripts: Mutex<Vec<&'static Script>>,
    /// What each run of the server is told first, and the last run that was told.
    pub(super) first_word: Option<Batch<'static>>,
    pub(super) told: Mutex<Option<RunId>>,
}

pub(super) struct Letter<'a> {
    pub(super) batch: &'a Batch<'a>,
    /// A connection that owes more replies than this has to be read first.
    pub(super) most: usize,
    pub(super) by: By,
    /// It goes to one of several servers, and the others are not to wait for this one: replies that
    /// are owed are read only as far as they have come. Scripts go out with it unless the server is
    /// known to have them: the answer of the slowest server that it lacks a script may be read by
    /// nobody in time, and then it would never grant.
    pub(super) is_scattered: bool,
}

impl<'a> Letter<'a> {
    pub(super) fn new(&Parcel { lane, batch, deadline }: &Parcel<'a>) -> Letter<'a> {
        // Making a connection is a part of waiting for one.
        Letter { batch, most: usize::MAX, by: lane.by(deadline), is_scattered: false }
    }
}

impl Peer {
    /// The connection for a letter: the seat's, or a new one. Also whether it is new.
    fn ready<'a>(
        &self,
        lent: &'a mut Lent<'_>,
        letter: &Letter<'_>,
        now: Moment,
    ) -> Result<(&'a mut Wire, bool), Error> {
        while let Some(wire) = &mut lent.wire {
            if wire.is_refused {
                lent.wire = None;
            } else if wire.is_demoted || !self.source.is_trusted(wire) {
                self.discard(lent, &moved());
            } else if wire.is_stale(now) {
                let gone = "the server has closed the connection";
                self.discard(lent, &Error::new(ErrorKind::Refused, gone));
            } else if wire.unread.len() > letter.most {
                let now = Deadline::at(Moment::ZERO);
                self.catch_up(lent, if letter.is_scattered { now } else { letter.by.connect });
                if lent.wire.as_ref().is_some_and(|wire| wire.unread.len() > letter.most) {
                    let behind = "the server is behind with its replies";
                    return Err(Error::new(ErrorKind::Exhausted, behind));
                }
            } else {
                break;
            }
        }
        let is_new = lent.wire.is_none();
        if is_new {
            let mut wire = self.source.dial(letter.by.connect, &|_| Ok(()))?;
            // Before one that declares it new there is none: it would be in quarantine by then.
            if let Some(word) = self.first_word.as_ref().filter(|_| !guard::is_init(letter.batch)) {
                self.introduce(&mut wire, word, letter.by.connect)?;
            }
            wire.unread.outbox = Arc::clone(&self.outbox);
            lent.wire = Some(Box::new(wire));
        }
        let none = || Error::bare(ErrorKind::Refused);
        lent.wire.as_deref_mut().map(|wire| (wire, is_new)).ok_or_else(none)
    }

    /// Says the first word on a new connection to a new run: a server that may have lost data waits
    /// from then on, and should not wait for a client that wants a lock. An error means that the
    /// connection is of no use at the moment; nothing else has been sent.
    fn introduce(&self, wire: &mut Wire, word: &Batch<'_>, by: Deadline) -> Result<(), Error> {
        if *self.told.lock() == wire.run {
            return Ok(());
        }
        let loads = word.loads();
        let bytes = [&loads.bytes, &*word.for_run(wire.run.as_ref())?].concat();
        wire.send(&bytes, by).map_err(|(_, error)| fault::io("the first word", &error))?;
        for _ in &loads.calls {
            // A user that may not load it may still call it.
            wire.receive(by)?;
        }
        match wire.receive(by)? {
            // It still reads its file, and would answer nothing else either.
            Value::ServerError(error) if error.code() == "LOADING" => {
                return Err(fault::server(&error));
            }
            // What prevents this prevents a grant, too, and the first grant begins the quarantine.
            Value::ServerError(error) => {
                say!(Debug, "greeting-refused", error = fault::server(&error));
            }
            _ => *self.told.lock() = wire.run,
        }
        Ok(())
    }

    /// Writes a letter. On an error nothing of it is under way in the seat.
    pub(super) fn send(&self, lent: &mut Lent<'_>, letter: &Letter<'_>) -> Result<Moment, Failure> {
        let Letter { batch, by: By { done: deadline, .. }, .. } = *letter;
        loop {
            let mut sent = Moment::now();
            if sent >= deadline.moment() {
                let late = Error::new(ErrorKind::NoAnswer, "the deadline had passed");
                return Err(Failure::not_done(late));
            }
            let (wire, is_new) = self.ready(lent, letter, sent).map_err(Failure::not_done)?;
            if is_new {
                // Behind it may be a server that was started again.
                self.known_scripts.lock().clear();
                // Connecting has taken time of which the validity is not to lose any.
                sent = Moment::now();
            }
            let lacks = letter.is_scattered && self.lacks_scripts(batch);
            let loads = lacks.then(|| batch.loads());
            let again = self.again(batch, wire);
            let mut bytes =
                self.behind(loads.as_ref(), &again, batch, wire).map_err(Failure::not_done)?;
            let (before, when) = (wire.unread.len(), (sent, deadline));
            // In front, so that the request is carried out as the newest user. If they are refused, the
            // connection is still logged in as before.
            if wire.login.is_some()
                && let Some((login, auth)) = self.source.newer(wire)
            {
                bytes = Cow::Owned([&auth, &*bytes].concat());
                wire.login = Some(Arc::clone(&login));
                wire.unread.push(Subject::Login(login), when);
            }
            // A user that may not load them may still call them; else the calls say what is wrong.
            for _ in loads.iter().flat_map(|loads| &loads.calls) {
                wire.unread.push(Subject::Nothing, when);
            }
            for GiveCopy { id, identity } in again {
                // What comes before ASKING and the call, where the call goes behind these.
                for _ in 1..if batch.is_asking { 3 } else { 1 } {
                    wire.unread.push(Subject::Nothing, when);
                }
                wire.unread.push(Subject::Give(id, identity), when);
            }
            let Err((count, error)) = wire.send(&bytes, deadline) else {
                if lacks {
                    self.known_scripts.lock().extend(batch.scripts());
                }
                return Ok(sent);
            };
            let error = fault::io("sending", &error);
            if count == 0 {
                wire.unread.take_back(wire.unread.len() - before, &error);
            }
            self.discard(lent, &error);
            if count > 0 {
                return Err(Failure::unknown(error, sent));
            }
            // Nothing went out on a connection that had died unseen: a new one may do.
            if is_new || error.kind() == ErrorKind::NoAnswer {
                return Err(Failure::not_done(error));
            }
        }
    }

    fn lacks_scripts(&self, batch: &Batch<'_>) -> bool {
        let known = self.known_scripts.lock();
        batch.scripts().any(|script| !known.iter().any(|known| std::ptr::eq(*known, script)))
    }

    fn again(&self, batch: &Batch<'_>, wire: &Wire) -> Vec<GiveCopy> {
        let requests = batch.calls.iter().filter_map(|call| call.request);
        self.outbox.in_front(requests, batch.look, Some(wire.unread.on))
    }

    fn behind<'a>(
        &self,
        loads: Option<&Batch<'_>>,
        gives: &[GiveCopy],
        batch: &'a Batch<'_>,
        wire: &Wire,
    ) -> Result<Cow<'a, [u8]>, Error> {
        let run = wire.run.as_ref();
        if loads.is_none() && gives.is_empty() {
            return batch.for_run(run);
        }
        let gives = gives.iter().map(|again| self.gives.pack(&again.identity.give()));
        let gives = gives.map(|give| if batch.is_asking { give.asking(0) } else { give });
        let loads = loads.map_or_else(Batch::default, |loads| Batch::default().and(loads));
        let all = gives.fold(loads, |all, one| all.and(&one)).and(batch);
        Ok(Cow::Owned(all.for_run(run)?.into_owned()))
    }

    /// Throws the seat's wire away; what it owes stays unknown.
    pub(super) fn discard(&self, lent: &mut Lent<'_>, error: &Error) {
        if let Some(wire) = lent.wire.take() {
            self.source.doubt(&wire);
            if !wire.unread.is_empty() {
                say!(Debug, "connection-dropped", error = *error);
            }
        }
    }

    /// Reads what the seat's connection owes, and then the replies to a batch.
    pub(super) fn collect(
        &self,
        lent: &mut Lent<'_>,
        batch: &Batch<'_>,
        carried: &mut [Carried],
        (sent, deadline): (Moment, Deadline),
    ) {
        let mut lost = self.skip(lent, deadline).err();
        for (call, answer) in batch.calls.iter().zip(carried) {
            if let (None, Some(wire)) = (&lost, &mut lent.wire) {
                match self.hear(wire, call, sent, deadline) {
                    Ok(heard) => {
                        *answer = Ok(heard);
                        continue;
                    }
                    Err(error) => lost = Some(error),
                }
            }
            let error = lost.get_or_insert_with(|| Error::bare(ErrorKind::Refused));
            *answer = Err(Failure::unknown(error.clone(), sent));
        }
        if let Some(error) = lost {
            // The next reply on the connection could belong to another request.
            self.discard(lent, &error);
        }
    }

    fn hear(
        &self,
        wire: &mut Wire,
        call: &Call<'_>,
        sent: Moment,
        deadline: Deadline,
    ) -> Result<Heard, Error> {
        let value = self.receive(wire, deadline)?;
        let wait = || self.receive(wire, deadline).map(Box::new);
        let copies = call.is_awaited.then(wait).transpose()?;
        Ok(Heard { value, sent, by: wire.server, copies })
    }

    /// One reply. Where the server may be replaced, its place is looked at meanwhile: one that fell
    /// silent is not waited for when there is another one.
    fn receive(&self, wire: &mut Wire, deadline: Deadline) -> Result<Value, Error> {
        if !self.source.may_move() {
            return wire.receive(deadline);
        }
        loop {
            let glance = Deadline::after(NEWS_EVERY).min(deadline);
            match wire.receive(glance) {
                Err(error) if error.kind() == ErrorKind::NoAnswer && !deadline.has_passed() => {
                    if !self.source.is_current(wire) {
                        return Err(moved());
                    }
                }
                received => {
                    wire.is_demoted |= matches!(&received, Ok(value) if is_demoted(value));
                    return received;
                }
            }
        }
    }

    fn skip(&self, lent: &mut Lent<'_>, deadline: Deadline) -> Result<(), Error> {
        let Some(wire) = &mut lent.wire else { return Ok(()) };
        while !wire.unread.is_empty() {
            let value = self.receive(wire, deadline)?;
            let Some(UnreadReply { subject, sent, .. }) = wire.unread.pop() else { break };
            let answer = Ok(Heard { value, sent, by: wire.server, copies: None });
            if lacks_script(&answer) {
                self.known_scripts.lock().clear();
            }
            match subject {
                Subject::Nothing => {}
                Subject::Login(login) => {
                    if let Ok(Heard { value: Value::ServerError(error), .. }) = &answer {
                        say!(Warn, "login-refused", error = fault::server(error));
                        wire.is_refused = true;
                        self.source.refused(&login);
                    }
                }
                Subject::Vote(token) => {
                    let lacks = answer.is_ok_and(|heard| lacks_lock(&heard.value));
                    self.outbox.vote_read(token, wire.unread.on, lacks);
                }
                Subject::Give(id, identity) => {
                    let mut answer = self.without_refusal(answer);
                    if self.source.has_slots() {
                        answer = plain(answer, || self.source.doubt(wire));
                    }
                    let outcome = self.gives.read(&identity.give(), answer);
                    self.outbox.answered(id, Some(wire.unread.on), &outcome);
                }
            }
        }
        Ok(())
    }

    /// Whether the server said that it is not the one to ask, where there may be another one.
    pub(super) fn is_refused(&self, carried: &Carried) -> bool {
        matches!(carried, Ok(heard) if is_demoted(&heard.value)) && self.source.may_move()
    }

    /// A server that refuses is about to be replaced, or to be a master again.
    pub(super) fn without_refusal(&self, carried: Carried) -> Carried {
        match &carried {
            Ok(Heard { value: Value::ServerError(error), .. }) if self.is_refused(&carried) => {
                let why = fault::server(error);
                Err(Failure::not_done(Error::new(ErrorKind::Unavailable, why.detail())))
            }
            _ => carried,
        }
    }

    /// Reads what the seat's connection owes while nothing else is under way on it, as far as it
    /// comes by a moment.
    pub(super) fn catch_up(&self, lent: &mut Lent<'_>, by: Deadline) {
        let Some(wire) = &mut lent.wire else { return };
        wire.has_whole(wire.unread.len(), by);
        match self.skip(lent, Deadline::at(Moment::ZERO)) {
            Err(error) if error.kind() != ErrorKind::NoAnswer => self.discard(lent, &error),
            Ok(()) | Err(_) => {}
        }
    }
}

/// What a connection is worth that leads to where a server was.
pub(super) fn moved() -> Error {
    Error::new(ErrorKind::Unavailable, "another server has taken its place")
}

/// What a server of a Cluster answers that does not serve a slot now; it is asked again later.
pub(super) fn plain(carried: Carried, doubt: impl Fn()) -> Carried {
    let Ok(Heard { value: Value::ServerError(error), .. }) = &carried else { return carried };
    let (code, details) = (error.code(), error.details().unwrap_or(""));
    let moves =
        matches!(code, "MOVED" | "ASK") || fault::server(error).kind() == ErrorKind::ReadOnly;
    if moves || code == "CLUSTERDOWN" {
        doubt();
    }
    if !moves {
        return carried;
    }
    let what = format!("the slot is on its way to another server ({code} {details})");
    Err(Failure::not_done(Error::new(ErrorKind::Unavailable, what)))
}

/// The words of a replica, or of a server that is becoming one.
fn is_demoted(value: &Value) -> bool {
    match value {
        Value::ServerError(error) => {
            fault::server(error).kind() == ErrorKind::ReadOnly
                || matches!(error.code(), "MASTERDOWN" | "LOADING")
        }
        _ => false,
    }
}

pub(super) fn lacks_script(carried: &Carried) -> bool {
    matches!(carried, Ok(Heard { value: Value::ServerError(error), .. })
        if error.kind() == Some(ServerErrorKind::NoScript))
}
