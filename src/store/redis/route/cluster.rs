//! A Cluster: each lock is on the server that has its slot, and slots move.
//!
//! A server that has not got the slot says so and has done nothing, so the call goes on to the one
//! that it names, within the same deadline. What may have been carried out is never sent again from
//! here.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::super::dial::Dialer;
use super::super::dialect::Batch;
use super::super::dialect::keys::slot;
use super::super::owing::About;
use super::super::pool::Pools;
use super::errands::{
    Errands, UNSURE, UnderWay, Unsure, Watched, is_for_later, may_be_done_elsewhere, plain,
};
use super::single::{Carried, Gives, Heard, all};
use super::slots::{Doubt, Elsewhere, Map, Node, elsewhere};
use super::whereabouts::{Whereabouts, slot_of};
use super::{Pending, Route};
use crate::clock::{Deadline, Moment};
use crate::config::Address;
use crate::error::{Error, ErrorKind};
use crate::store::{Failure, Lane, Outcome, Owed, Reply, Request};

/// How often a call is sent on. While a slot changes hands, its servers may point at each other.
const HOPS: usize = 4;
/// How long one server is waited for before the next one is looked at.
const GLIMPSE: Duration = Duration::from_millis(2);
/// After the deadline, for what was answered in time.
const LAST_LOOK: Duration = Duration::from_millis(2);

pub(in crate::store::redis) struct Cluster {
    map: Arc<Map>,
    gives: Arc<dyn Gives>,
    prefix: Vec<u8>,
    unsure: Arc<Unsure>,
    errands: Errands,
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
        dialer: Arc<Dialer>,
        seeds: &[Address],
        pools: Pools,
        prefix: &[u8],
        gives: Arc<dyn Gives>,
    ) -> Result<Cluster, Error> {
        let (unsure, doubt) = (Arc::<Unsure>::default(), Doubt::default());
        let watched = Arc::new(Watched {
            gives: Arc::clone(&gives),
            doubt: Arc::clone(&doubt),
            unsure: Arc::clone(&unsure),
        });
        let map = Arc::new(Map::new(dialer, seeds, pools, watched, doubt)?);
        Ok(Cluster { map, gives, prefix: prefix.to_vec(), unsure, errands: Errands::default() })
    }

    /// Lets places be told by this one's map.
    pub(in crate::store::redis) fn tell(&self, whereabouts: &Whereabouts) {
        // It is there once.
        let _ = whereabouts.0.set(Arc::downgrade(&self.map));
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
        for (node, calls) in parts.values_mut() {
            calls.retain(|call| {
                let Some(name) = about.sees(*call) else { return true };
                match self.run_errands(name, Some(node.key), lane, deadline) {
                    Ok(()) => true,
                    Err(error) => {
                        carried[*call] = Err(Failure::not_done(error));
                        false
                    }
                }
            });
        }
        parts.retain(|_, (_, calls)| !calls.is_empty());
        if parts.len() == 1
            && let Some((_, (node, calls))) = parts.first_key_value()
            && calls.len() == batch.calls.len()
        {
            let answers = node.single.carry(lane, batch, about, deadline);
            for (call, answer) in answers.into_iter().enumerate() {
                let answer = self.sort(call, answer, node, (batch, about), lane, deadline);
                answer.put(call, carried, &mut onward);
            }
            return onward;
        }
        let mut parts: Vec<_> = parts
            .into_values()
            .map(|(node, calls)| Part {
                requests: match about {
                    About::Requests(all) | About::Ballots(all) => {
                        calls.iter().map(|call| all[*call]).collect()
                    }
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
                let answer = self.sort(call, answer, &node, (batch, about), lane, deadline);
                answer.put(call, carried, &mut onward);
            }
        }
        onward
    }

    /// What is to be done with an answer. A call that is to be asked for elsewhere goes there.
    fn sort(
        &self,
        call: usize,
        answer: Carried,
        from: &Node,
        (batch, about): (&Batch, About<'_>),
        lane: Lane,
        deadline: Deadline,
    ) -> Sorted {
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
                return if moved { Sorted::Onward(answer) } else { Sorted::Done(answer) };
            }
            Err(_) => None,
        };
        let to = match moved {
            None if about.sees(call).is_some_and(|name| self.has_undone(name)) => {
                // It went out behind a give that was not done, and comes again behind it.
                return Sorted::Onward(answer);
            }
            None => return Sorted::Done(self.plain(answer)),
            Some(Elsewhere::Moved(slot, to)) => {
                self.unsure.set();
                return match self.map.moved(slot, to) {
                    Ok(()) => Sorted::Onward(answer),
                    Err(error) => Sorted::Done(Err(Failure::not_done(error))),
                };
            }
            Some(Elsewhere::Ask(to)) => to,
        };
        let name = about.sees(call);
        if let Some(name) = name
            && let Err(error) = self.run_errands(name, None, lane, deadline)
        {
            return Sorted::Done(Err(Failure::not_done(error)));
        }
        let about = name.map_or(About::Nothing, About::Name);
        Sorted::Done(match self.map.at(to) {
            Ok(node) => {
                let mut asked = node.single.carry(lane, &batch.asking(call), about, deadline);
                asked.pop().map_or(answer, |answer| self.plain(answer))
            }
            Err(error) => Err(Failure::not_done(error)),
        })
    }

    fn plain(&self, carried: Carried) -> Carried {
        plain(carried, self.map.doubt())
    }

    /// Sees to it that gives of a name come before what is about to be sent: those that other servers
    /// have not answered, and those that were not done. An error where they still are not.
    fn run_errands(
        &self,
        name: &[u8],
        to: Option<u32>,
        lane: Lane,
        deadline: Deadline,
    ) -> Result<(), Error> {
        if !self.is_unsure() {
            return Ok(());
        }
        let nodes = self.map.nodes();
        for node in nodes.iter().filter(|node| Some(node.key) != to) {
            node.single.hear_of(name, lane, deadline);
        }
        self.errands.wait_for(name, deadline);
        let undone: Vec<_> =
            nodes.iter().flat_map(|node| node.single.owing.take_undone(name)).collect();
        self.give_again(undone, lane, deadline);
        if self.has_undone(name) {
            let what = "its own release waits for a slot that moves to another server";
            return Err(Error::new(ErrorKind::Unavailable, what));
        }
        Ok(())
    }

    fn is_unsure(&self) -> bool {
        self.unsure.is_set() || Moment::now().since(self.map.changed()) < UNSURE
    }

    fn has_undone(&self, name: &[u8]) -> bool {
        let here = |node: &Arc<Node>| node.single.owing.has_undone(name);
        self.is_unsure() && self.map.nodes().iter().any(here)
    }

    /// Sends gives once more that were not done. What became of them is told with the others, unless
    /// they were done now.
    fn give_again(&self, undone: Vec<Owed>, lane: Lane, deadline: Deadline) {
        let Some(node) = self.map.nodes().into_iter().next().filter(|_| !undone.is_empty()) else {
            return;
        };
        let requests: Vec<_> = undone.iter().map(|owed| owed.identity.give()).collect();
        // As nobody's: they have no others to wait for.
        let carried = self.carry(lane, &self.gives.pack(&requests), About::Nothing, deadline);
        let outcomes = requests.iter().zip(carried);
        let outcomes: Vec<_> = outcomes.map(|(give, one)| self.gives.read(give, one)).collect();
        let ended = undone.into_iter().zip(outcomes);
        let is_done =
            |outcome: &Outcome| matches!(outcome, Ok(answer) if answer.reply == Reply::Given);
        node.single.owing.end(ended.filter(|(_, outcome)| !is_done(outcome)).collect());
    }
}

/// An answer, or one that sends the call on.
enum Sorted {
    Done(Carried),
    Onward(Carried),
}

impl Sorted {
    fn put(self, call: usize, carried: &mut [Carried], onward: &mut Vec<usize>) {
        carried[call] = match self {
            Sorted::Done(answer) => answer,
            Sorted::Onward(answer) => {
                onward.push(call);
                answer
            }
        };
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

/// Sends every part before the first answer is waited for. One that cannot be reached must leave
/// time for the others.
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
    // Who answers at once comes first: a server that has to be told its scripts again needs the time
    // that a silent one would take.
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
            // What came in time is read, however long another one was waited for.
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
        let mut answered = BTreeMap::new();
        for _ in 0..HOPS {
            open = self.round(lane, (batch, about), open, &mut carried, deadline);
            for call in &open {
                if let Ok(Heard { value, sent, .. }) = &carried[*call]
                    && !matches!(value, Value::ServerError(_))
                {
                    answered.entry(*call).or_insert(*sent);
                }
            }
            if open.is_empty() || deadline.has_passed() {
                break;
            }
        }
        for call in open {
            let answer = self.plain(std::mem::replace(&mut carried[call], Err(late.clone())));
            // Behind a give that was not done, an answer is none.
            let unknown = |heard: Heard| Err(Failure::unknown(late.error.clone(), heard.sent));
            carried[call] = answer.and_then(unknown);
        }
        // Once it was carried out, that it could not be asked again does not undo it.
        for (call, sent) in answered {
            if let Err(failure) = &mut carried[call] {
                failure.sent.get_or_insert(sent);
            }
        }
        carried
    }

    fn let_go(&self, owed: &Owed, lane: Lane, deadline: Deadline) -> Result<(), Failure> {
        let slot = slot_of(&self.prefix, &owed.identity.name);
        let node = self.map.owner(slot).map_err(Failure::not_done)?;
        node.single.let_go(owed, lane, deadline)
    }

    fn settle(&self, before: Moment, deadline: Deadline) -> Vec<(Owed, Outcome)> {
        let nodes = self.map.nodes();
        self.errands.are(UnderWay::Some);
        let settle = |node: &Arc<Node>| node.single.settle(before, deadline);
        let ended: Vec<_> = nodes.iter().flat_map(settle).collect();
        let (undone, mut ended): (Vec<_>, Vec<_>) =
            ended.into_iter().partition(|(_, outcome)| may_be_done_elsewhere(outcome));
        if !undone.is_empty() {
            let undone: Vec<_> = undone.into_iter().map(|(owed, _)| owed).collect();
            let names = undone.iter().map(|owed| Arc::clone(&owed.identity.name)).collect();
            self.errands.are(UnderWay::These(names));
            self.give_again(undone, Lane::Keeper, deadline);
            let again = nodes.iter().flat_map(|node| node.single.owing.take_ended());
            // While a slot moves they stay here, where whoever takes the name looks for them.
            let (later, over): (Vec<_>, Vec<_>) =
                again.partition(|(owed, outcome)| is_for_later(owed, outcome));
            if let Some(node) = nodes.first().filter(|_| !later.is_empty()) {
                // A slot may take longer to move than doubts about it last.
                self.unsure.set();
                node.single.owing.end(later);
            }
            ended.extend(over);
        }
        self.errands.are(UnderWay::Nothing);
        ended
    }

    fn owed_since(&self) -> Option<Moment> {
        self.map.owed_since()
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
