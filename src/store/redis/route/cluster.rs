//! A Cluster: each lock is on the server that has its slot, and slots move.
//!
//! A server that does not have the slot says so and has done nothing, so the call goes on to the
//! server that it names, within the same deadline. A call that may have been carried out is never
//! sent again from here.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redis::Value;

use super::super::dialect::Batch;
use super::super::dialect::keys::{slot, slot_behind};
use super::super::fault;
use super::super::unread::About;
use super::single::all;
use super::slots::{Doubt, Elsewhere, Map, Node, elsewhere};
use super::{Carried, Gives, Heard, Pending, Route};
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::store::outbox::Outbox;
use crate::store::{Failure, Lane, Outcome, Owed, Request};

/// How often a call is sent on. While a slot changes hands, its servers may point at each other.
const HOPS: usize = 4;
/// How long one server is waited for before the next one is looked at.
const GLIMPSE: Duration = Duration::from_millis(2);
/// How long after the deadline answers are read that came in time.
const LAST_LOOK: Duration = Duration::from_millis(2);

pub(in crate::store::redis) struct Cluster {
    map: Arc<Map>,
    gives: Arc<dyn Gives>,
    outbox: Arc<Outbox>,
    prefix: Vec<u8>,
}

/// Looks at what is answered to gives that nobody waits for.
struct Watched {
    gives: Arc<dyn Gives>,
    doubt: Doubt,
}

impl Gives for Watched {
    fn pack(&self, give: &Request<'_>) -> Batch {
        self.gives.pack(give)
    }

    fn read(&self, give: &Request<'_>, carried: Carried) -> Outcome {
        self.gives.read(give, plain(carried, &self.doubt))
    }

    fn lacks_lock(&self, reply: &Value) -> bool {
        self.gives.lacks_lock(reply)
    }
}

/// Some calls of a batch, all for one server.
struct Part<'a> {
    node: Arc<Node>,
    calls: Vec<usize>,
    requests: Vec<Request<'a>>,
    batch: Batch,
    carried: Vec<Carried>,
}

impl Cluster {
    /// Connects to nothing yet.
    pub(in crate::store::redis) fn new(
        map: Arc<Map>,
        prefix: &[u8],
        gives: Arc<dyn Gives>,
        outbox: Arc<Outbox>,
    ) -> Cluster {
        let gives: Arc<dyn Gives> = Arc::new(Watched { gives, doubt: Arc::clone(map.doubt()) });
        map.tell(Arc::clone(&gives), Arc::clone(&outbox));
        Cluster { map, gives, outbox, prefix: prefix.to_vec() }
    }

    /// Sends calls to the servers that have their slots, and puts their answers in place. Returns
    /// those that are to be sent on.
    fn round(
        &self,
        lane: Lane,
        (batch, about): (&Batch, About<'_>),
        open: Vec<usize>,
        carried: &mut [Carried],
        deadline: Deadline,
    ) -> Vec<usize> {
        let mut parts: BTreeMap<u32, (Arc<Node>, Vec<usize>)> = BTreeMap::new();
        for call in open {
            match self.map.owner(slot(batch.key(call))) {
                Ok(node) => parts.entry(node.key).or_insert((node, Vec::new())).1.push(call),
                Err(error) => carried[call] = Err(Failure::not_done(error)),
            }
        }
        let mut onward = Vec::new();
        if parts.len() == 1
            && let Some((_, (node, calls))) = parts.first_key_value()
            && calls.len() == batch.calls.len()
        {
            let answers = node.single.carry(lane, batch, about, deadline);
            for (call, answer) in answers.into_iter().enumerate() {
                let goes_on;
                (carried[call], goes_on) =
                    self.sort(call, answer, node, (batch, about), lane, deadline);
                onward.extend(goes_on.then_some(call));
            }
            return onward;
        }
        let mut parts: Vec<_> = parts
            .into_values()
            .map(|(node, calls)| Part {
                requests: match about {
                    About::Requests(all) => calls.iter().map(|call| all[*call]).collect(),
                    About::Nothing | About::Name(_) => Vec::new(),
                },
                batch: batch.only(&calls),
                carried: Vec::new(),
                node,
                calls,
            })
            .collect();
        scatter(&mut parts, lane, deadline);
        for Part { node, calls, carried: answers, .. } in parts {
            for (call, answer) in calls.into_iter().zip(answers) {
                let goes_on;
                (carried[call], goes_on) =
                    self.sort(call, answer, &node, (batch, about), lane, deadline);
                onward.extend(goes_on.then_some(call));
            }
        }
        onward
    }

    /// An answer, and whether the call is to be sent on. One that has to be asked for elsewhere is.
    fn sort(
        &self,
        call: usize,
        answer: Carried,
        from: &Node,
        (batch, about): (&Batch, About<'_>),
        lane: Lane,
        deadline: Deadline,
    ) -> (Carried, bool) {
        let moved = match &answer {
            Ok(Heard { value: Value::ServerError(error), .. }) => {
                elsewhere(error.code(), error.details().unwrap_or(""), &from.address)
            }
            Ok(_) => None,
            // Not even connected: another server may have taken over.
            Err(failure) if failure.sent.is_none() && !deadline.has_passed() => {
                let slot = slot(batch.key(call));
                let refused = failure.error.kind() == ErrorKind::Refused;
                let moved = refused
                    && self.map.refresh(deadline).is_ok()
                    && self.map.owner(slot).is_ok_and(|owner| owner.key != from.key);
                return (answer, moved);
            }
            Err(_) => None,
        };
        let to = match moved {
            // It went out behind a give that was not done, and goes out behind it again.
            None if self.is_in_vain(about.sees(call), &answer) => return (answer, true),
            None => return (self.plain(answer), false),
            Some(Elsewhere::Moved(slot, to)) => {
                return match self.map.moved(slot, to) {
                    Ok(()) => (answer, true),
                    Err(error) => (Err(Failure::not_done(error)), false),
                };
            }
            Some(Elsewhere::Ask(to)) => to,
        };
        let about = about.sees(call).map_or(About::Nothing, About::Name);
        let answer = match self.map.at(to) {
            Ok(node) => {
                let mut asked = node.single.carry(lane, &batch.asking(call), about, deadline);
                asked.pop().map_or(answer, |answer| self.plain(answer))
            }
            Err(error) => Err(Failure::not_done(error)),
        };
        (answer, false)
    }

    /// Whether a take did not get the lock of this name while a give of it was not done.
    fn is_in_vain(&self, name: Option<&[u8]>, answer: &Carried) -> bool {
        let lacks_lock = |heard: &Heard| self.gives.lacks_lock(&heard.value);
        name.is_some_and(|name| self.outbox.has_undone(name))
            && answer.as_ref().is_ok_and(lacks_lock)
    }

    fn plain(&self, carried: Carried) -> Carried {
        plain(carried, self.map.doubt())
    }
}

/// Answers that have come already.
struct Answered(Vec<Carried>);

impl Pending for Answered {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn is_answered(&mut self, _until: Deadline) -> bool {
        true
    }

    fn is_in_vain(&self) -> bool {
        self.0.iter().all(Result::is_err)
    }

    fn finish(self: Box<Self>) -> Vec<Carried> {
        self.0
    }

    fn leave(self: Box<Self>) -> Vec<Carried> {
        self.0
    }
}

/// Sends every part before the first answer is waited for. A server that cannot be reached must
/// leave time for the others.
fn scatter(parts: &mut [Part<'_>], lane: Lane, deadline: Deadline) {
    let mut left = u32::try_from(parts.len()).unwrap_or(u32::MAX);
    let mut sent = Vec::with_capacity(parts.len());
    let mut unsent = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let share = Deadline::after(deadline.left() / left.saturating_add(1));
        left -= 1;
        let about = match &part.requests[..] {
            [] => About::Nothing,
            requests => About::Requests(requests),
        };
        let single = &part.node.single;
        match single.begin(lane, &part.batch, about, share, deadline, false) {
            Ok(started) => sent.push((at, started)),
            Err(failure) => unsent.push((at, failure)),
        }
    }
    // A server that answers at once is read first: one that has to be told its scripts again needs
    // the time that a silent one would take.
    let (mut answers, mut others) = (Vec::with_capacity(parts.len()), Vec::new());
    for (at, started) in sent {
        let mut started = Box::new(started);
        if started.is_answered(deadline.min(Deadline::after(GLIMPSE))) {
            answers.push((at, started.finish()));
        } else {
            others.push((at, started));
        }
    }
    let mut last_look = None;
    for (at, mut started) in others {
        if deadline.has_passed() {
            // An answer that came in time is read, however long another one was waited for.
            let by = *last_look.get_or_insert_with(|| Deadline::after(LAST_LOOK));
            started.is_answered(by);
        }
        answers.push((at, started.finish()));
    }
    answers.extend(unsent.into_iter().map(|(at, failure)| (at, all(&parts[at].batch, &failure))));
    for (at, carried) in answers {
        parts[at].carried = carried;
    }
}

impl Route for Cluster {
    fn carry(
        &self,
        lane: Lane,
        batch: &Batch,
        about: About<'_>,
        deadline: Deadline,
    ) -> Vec<Carried> {
        if let Err(error) = self.map.freshen(deadline) {
            return all(batch, &Failure::not_done(error));
        }
        let late = Failure::not_done(Error::new(ErrorKind::NoAnswer, "the deadline had passed"));
        let mut carried = all(batch, &late);
        let mut open: Vec<usize> = (0..batch.calls.len()).collect();
        for _ in 0..HOPS {
            open = self.round(lane, (batch, about), open, &mut carried, deadline);
            if open.is_empty() || deadline.has_passed() {
                break;
            }
        }
        for call in open {
            let answer = self.plain(std::mem::replace(&mut carried[call], Err(late.clone())));
            carried[call] = answer.and_then(|_| {
                let what = "its own release waits for a slot that moves to another server";
                Err(Failure::not_done(Error::new(ErrorKind::Unavailable, what)))
            });
        }
        carried
    }

    fn let_go(&self, owed: &Owed, lane: Lane, deadline: Deadline) -> Result<(), Failure> {
        let slot = slot_behind(&self.prefix, &owed.identity.name);
        let node = self.map.owner(slot).map_err(Failure::not_done)?;
        node.single.let_go(owed, lane, deadline)
    }

    fn read_unread(&self, before: Moment) {
        self.map.nodes().iter().for_each(|node| node.single.read_unread(before));
    }

    /// Where it goes is known only from the answers, so they are here when it returns.
    fn start<'a>(
        &'a self,
        lane: Lane,
        batch: &'a Batch,
        about: About<'a>,
        deadline: Deadline,
    ) -> Result<Box<dyn Pending + 'a>, Failure> {
        Ok(Box::new(Answered(self.carry(lane, batch, about, deadline))))
    }

    fn is_silent(&self) -> bool {
        false
    }

    fn ping(&self, deadline: Deadline) -> Result<(), Error> {
        self.map.refresh(deadline)?;
        self.map.freshen(deadline)?;
        let masters = self.map.masters();
        for (node, left) in masters.iter().zip((1..=masters.len()).rev()) {
            let share = deadline.left() / u32::try_from(left).unwrap_or(u32::MAX);
            node.single.ping(Deadline::after(share))?;
        }
        Ok(())
    }
}

/// What a server answers that does not serve a slot at the moment; it is asked again later.
fn plain(carried: Carried, doubt: &Doubt) -> Carried {
    let Ok(Heard { value: Value::ServerError(error), .. }) = &carried else { return carried };
    let (code, details) = (error.code(), error.details().unwrap_or(""));
    let kind = fault::server(error).kind();
    if code == "CLUSTERDOWN" {
        doubt.store(true, Ordering::Release);
    }
    let moves = matches!(code, "MOVED" | "ASK") || kind == ErrorKind::ReadOnly;
    if !moves {
        return carried;
    }
    doubt.store(true, Ordering::Release);
    let what = format!("the slot is on its way to another server ({code} {details})");
    Err(Failure::not_done(Error::new(ErrorKind::Unavailable, what)))
}
