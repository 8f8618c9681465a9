//! Releases that nobody waits for: all nodes are told at once, and what they say is counted whenever it
//! is read: with the next request on that connection, or by the keeper.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::QuorumStore;
use super::node::{Node, Sheet};
use super::question::Question;
use super::round::{Said, Vote, majority};
use super::tally::{Tally, Verdict};
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::store::outbox::{Concern, ConnectionId, Outbox};
use crate::store::{Answer, Failure, Lane, Owed, Reply, ServerId};
use crate::sync::{AtomicUsize, Mutex};
use crate::token::Token;

/// Under which the outbox of the client hears of a release that went out on all nodes' connections.
const ALL: ConnectionId = ConnectionId(ServerId(u32::MAX), u64::MAX);

pub(super) struct Drops {
    /// The client's: of what was released it hears only what did not go well.
    outbox: Arc<Outbox>,
    /// Entries below: with none, nobody locks them.
    count: AtomicUsize,
    open: Mutex<HashMap<Token, Dropped>>,
}

struct Dropped {
    owed: Owed,
    sent: Moment,
    tally: Tally,
}

impl Drops {
    pub(super) fn new(outbox: &Arc<Outbox>) -> Drops {
        Drops { outbox: Arc::clone(outbox), count: AtomicUsize::new(0), open: Mutex::default() }
    }

    fn begin(&self, owed: &Owed, nodes: usize, sent: Moment) {
        let dropped = Dropped { owed: owed.clone(), sent, tally: Tally::new(nodes, sent) };
        self.change(|open| open.insert(owed.identity.token, dropped));
    }

    fn is_empty(&self) -> bool {
        self.count.load(std::sync::atomic::Ordering::SeqCst) == 0
    }

    fn heard(&self, node: usize, token: Token, vote: Vote) {
        let ended = self.change(|open| {
            let Entry::Occupied(mut dropped) = open.entry(token) else { return None };
            let verdict = dropped.get_mut().tally.heard(node, vote)?;
            Some((dropped.remove(), verdict))
        });
        if let Some((dropped, verdict)) = ended {
            self.end(dropped, verdict);
        }
    }

    /// Those that the store has forgotten meanwhile, of which nothing was heard.
    pub(super) fn expire(&self, now: Moment) {
        if self.is_empty() {
            return;
        }
        let over = self.change(|open| {
            open.extract_if(|_, dropped| dropped.owed.until <= now).map(|(_, it)| it).collect()
        });
        let over: Vec<Dropped> = over;
        for dropped in over {
            let error =
                Error::new(ErrorKind::NoQuorum, "too few servers have said what became of it");
            let failure = Failure::unknown(error, dropped.sent);
            self.end(dropped, Verdict::Unknown(failure));
        }
    }

    fn end(&self, Dropped { owed, sent, .. }: Dropped, verdict: Verdict) {
        let outcome = match verdict {
            Verdict::Done => return,
            Verdict::NotMine => {
                let (server, by, again) = Default::default();
                Ok(Answer { reply: Reply::NotMine, sent, server, by, again })
            }
            Verdict::Unknown(failure) => Err(failure),
        };
        let id = self.outbox.written(owed, Concern::Release, ALL);
        self.outbox.answered(id, Some(ALL), &outcome);
    }

    fn change<T>(&self, with: impl FnOnce(&mut HashMap<Token, Dropped>) -> T) -> T {
        let mut open = self.open.lock();
        let changed = with(&mut open);
        self.count.store(open.len(), std::sync::atomic::Ordering::SeqCst);
        changed
    }
}

impl QuorumStore {
    /// Tells all nodes to give it, and waits for no answer. A node that cannot be told is owed it.
    pub(super) fn drop_on_all(&self, owed: &Owed, lane: Lane, deadline: Deadline) {
        let (nodes, sent, identity) = (self.nodes(), Moment::now(), &owed.identity);
        let question = Question::new(identity.give(), 0, nodes.len(), sent);
        let ballot = question.ballot();
        // Before anything is sent: another thread may read the first answers.
        self.drops.begin(owed, nodes.len(), sent);
        let mut packed: Option<(&Node, Sheet<'_>)> = None;
        // Those that had trouble come last, where the others are no majority. A Cluster keeps the caller
        // until it has answered, so the servers are told before it.
        let mut asked: Vec<_> =
            nodes.iter().enumerate().map(|(at, node)| (at, node, node.is_ready())).collect();
        asked.sort_by_key(|(_, node, is_ready)| (!is_ready, node.is_blocking));
        let ready = asked.iter().filter(|(.., is_ready)| *is_ready).count();
        let all_are_needed = ready < majority(nodes.len());
        for (at, node, is_ready) in asked {
            let is_same =
                |(other, sheet): &(&Node, Sheet<'_>)| node.packs_as(other, &sheet.ballots);
            if !packed.as_ref().is_some_and(is_same) {
                let sheet = node.pack(vec![ballot]);
                if let Some((other, sheet)) = packed.replace((node, sheet)) {
                    other.keep(sheet);
                }
            }
            let Some((_, sheet)) = &packed else { continue };
            // One that rests would only keep the caller: it has failed a moment ago.
            let is_asked = is_ready || all_are_needed && node.is_to_be_tried();
            let asked = is_asked.then(|| node.ask(lane, sheet, self.by(deadline)));
            match asked {
                Some(Ok(asked)) => {
                    for said in asked.leave_unread(false, Concern::Part) {
                        let is_to_be_told = said.is_err();
                        self.drops.heard(at, identity.token, Some(said));
                        // A Cluster has said so at once, and its connections know nothing of it.
                        if is_to_be_told {
                            node.owe(&sheet.requests(), Concern::AnyReply);
                        }
                    }
                }
                Some(Err(_)) | None if node.kept_until(true) > Moment::now() => {
                    node.owe(&sheet.requests(), Concern::Part);
                }
                // It has nothing to give up. In a long outage it would be owed all that is dropped.
                Some(Err(_)) | None => {
                    let error =
                        Error::new(ErrorKind::Unavailable, "it keeps no lock of this client");
                    self.drops.heard(at, identity.token, Some(Err(Failure::not_done(error))));
                }
            }
        }
        if let Some((node, sheet)) = packed {
            node.keep(sheet);
        }
        let again = self.mends.given(identity.token);
        self.give_again(&again, (&identity.name, identity.token, identity.ttl));
    }

    /// What was read of answers that nobody waits for.
    pub(super) fn count_votes(&self) {
        for (at, node) in self.nodes().iter().enumerate() {
            for (token, reply) in node.outbox.take_votes() {
                self.drops.heard(at, token, vote(reply));
            }
        }
    }
}

fn vote(reply: Option<Reply>) -> Vote {
    reply.map(|reply| Ok(if reply == Reply::Given { Said::Given } else { Said::NotMine }))
}
