//! Random walks on which a node and its model have to say the same, tell the same, and keep the
//! same.

use super::*;
use crate::explore::models::quorum::{Entry, Flaws, Marker, ModelNode, Side};
use crate::explore::models::{Channel, Held, ModelWakeup};
use crate::jitter::Jitter;

/// So long that nothing ends during a walk, and so far apart that nobody takes one for another.
const TTLS: [Duration; 3] =
    [Duration::from_secs(200), Duration::from_secs(2000), Duration::from_secs(20_000)];
/// How much a node's ttl may differ from the model's: whole milliseconds, and a slow machine.
const BLUR: Duration = Duration::from_secs(90);
const WALK: Guard = Guard { max_ttl: Duration::from_secs(20_000), clustered: false };

const CHANNELS: Channel = 4;
const TOKENS: u32 = 6;
/// Runs of a server that are none of this one.
const OTHER: u32 = 7;

#[test]
fn the_model_and_a_node_say_the_same() {
    for seed in 0..12 {
        Walk::new(seed, Flaws::default()).go(400).unwrap();
    }
}

#[test]
fn a_model_that_is_wrong_on_purpose_is_found_out() {
    let none = Flaws::default();
    for flaws in [
        Flaws { raises_any_attempt: true, ..none },
        Flaws { gives_any_attempt: true, ..none },
        Flaws { grants_late_copies: true, ..none },
        Flaws { forgets_that_it_forgot: true, ..none },
        Flaws { tells_one: true, ..none },
        Flaws { fills_in_quarantine: true, ..none },
        Flaws { fills_over_others: true, ..none },
        Flaws { fills_without_the_fence: true, ..none },
        Flaws { fills_with_a_lower_fence: true, ..none },
    ] {
        let found = (0..12).any(|seed| Walk::new(seed, flaws).go(400).is_err());
        assert!(found, "{flaws:?}");
    }
}

struct Walk {
    node: Node,
    model: ModelNode,
    random: Jitter,
    listener: Vec<Option<Listener>>,
    /// What was sent before, to be sent again or late: with its client.
    sent: Vec<(u32, Ballot<'static>)>,
    tickets: Vec<u64>,
    /// The next attempt; of every client, since a node does not know whose clock it is.
    attempt: u64,
    fence: u64,
    run: String,
}

impl Walk {
    fn new(seed: u64, flaws: Flaws) -> Walk {
        let node = Node::uninitialized().with(quorum(WALK));
        node.initialize(WALK, false).unwrap();
        let marker = Some(Marker { run: 0, over: 0, longest: WALK.max_ttl });
        let model = ModelNode {
            lock: None,
            side: None,
            queue: Vec::new(),
            marker,
            run: 0,
            longest: WALK.max_ttl,
            flaws,
        };
        Walk {
            run: node.run(),
            node,
            model,
            random: Jitter::seeded(seed),
            listener: (0..CHANNELS).map(|_| None).collect(),
            sent: Vec::new(),
            tickets: vec![0; TOKENS as usize],
            // Some clients' clocks make shorter numbers.
            attempt: if seed.is_multiple_of(3) { 1000 } else { 1_790_000_000_000_000 },
            fence: 1000,
        }
    }

    fn go(mut self, steps: u32) -> Result<(), String> {
        let mut past = Vec::new();
        for _ in 0..steps {
            let (what, result) = self.step();
            past.push(what);
            result.and_then(|()| self.compare()).map_err(|error| {
                format!("{error}\nafter {:#?}", &past[past.len().saturating_sub(9)..])
            })?;
        }
        Ok(())
    }

    /// Something happens, to both.
    fn step(&mut self) -> (String, Result<(), String>) {
        let (client, ballot) = match self.below(32) {
            0 => return self.lose("the lock ends", &["DEL", "n"], |model| model.lock = None),
            1 => {
                let until = self.node.time() + 400_000_000;
                let seize = ["SET", "n", "theirs", "PX", "400000"];
                return self.lose("a foreign client takes the lock", &seize, |model| {
                    model.lock = Some(Held { token: None, until });
                });
            }
            2 => {
                return self
                    .lose("the side key is lost", &["DEL", SIDE], |model| model.side = None);
            }
            3 if self.below(3) == 0 => {
                return self.lose("the data is lost", &["FLUSHALL"], |model| {
                    (model.lock, model.side, model.marker) = (None, None, None);
                    model.queue.clear();
                });
            }
            3 => {
                let marker = format!("{OTHER:040x} 0 {}", millis(WALK.max_ttl));
                return self.lose("it is another run", &["SET", MARKER, &marker], |model| {
                    let longest = WALK.max_ttl;
                    model.marker = Some(Marker { run: OTHER, over: 0, longest });
                });
            }
            4..=6 => {
                let marker = format!("{} 0 {}", self.run, millis(WALK.max_ttl));
                return self.lose("its quarantine is over", &["SET", MARKER, &marker], |model| {
                    model.marker = Some(Marker { run: 0, over: 0, longest: WALK.max_ttl });
                });
            }
            7..=8 => {
                let channel = self.below(CHANNELS.into()) as u32;
                let wakeup = &mut self.listener[channel as usize];
                match wakeup.take() {
                    Some(open) => open.close(),
                    None => *wakeup = Some(self.node.listen(channel)),
                }
                return (format!("{channel} opens or closes its wakeup"), Ok(()));
            }
            // Once more, and perhaps late.
            9..=15 if !self.sent.is_empty() => {
                let back = self.below(6.min(self.sent.len() as u64)) as usize;
                self.sent[self.sent.len() - 1 - back]
            }
            _ => self.new_ballot(),
        };
        self.sent.push((client, ballot));
        let is_open = self.below(8) > 0;
        (format!("{ballot:?}, open: {is_open}"), self.ask(client, ballot, is_open))
    }

    fn new_ballot(&mut self) -> (u32, Ballot<'static>) {
        let client = self.below(TOKENS.into()) as u32;
        let (token, ttl) = (token(client), TTLS[self.below(3) as usize]);
        self.attempt += 1 + self.below(50);
        if self.below(20) == 0 {
            self.attempt += 60_000_000;
        }
        // Now and then of a clock that is behind, or one that ran off.
        let attempt = match self.below(12) {
            0 => self.attempt - 500,
            1 => self.node.time() + 2 * HOUR,
            _ => self.attempt,
        };
        let whose = self.below(TOKENS.into()) as usize;
        let ticket = self.tickets[whose];
        let known = self.model.side.as_ref().and_then(|side| side.grant);
        let (attempt_known, holder) = known.unwrap_or((attempt, token));
        let mine = self.below(3) > 0;
        let (attempt_known, token_known) =
            if mine { (attempt_known, holder) } else { (attempt, token) };
        // The same whenever it is sent.
        let block = 1 + (attempt % 3) as u32;
        let near = (attempt_known + self.below(3)).saturating_sub(1);
        let ballot = match self.below(14) {
            0..=2 => ballot(token, Asks::Take { ttl, place: Place::Join(0), attempt, block }),
            3 => ballot(token, Asks::Take { ttl, place: Place::Join(ticket), attempt, block }),
            4 => ballot(token, Asks::Take { ttl, place: Place::Try, attempt, block }),
            5 | 6 => {
                let fence = (self.fence + self.below(4)).saturating_sub(1);
                ballot(token_known, Asks::Raise { attempt: near, fence })
            }
            7 => {
                let pass = Reach::Pass(token);
                let reach = [Reach::Grow, Reach::Claim, Reach::Set, pass][self.below(4) as usize];
                ballot(token_known, Asks::Extend { fence: self.fence, ttl, reach })
            }
            // Mostly of a lease under the last fence, else under one that others have passed.
            8 | 9 => {
                let fence = self.fence - if self.below(4) > 0 { 0 } else { self.fence.min(3000) };
                let block = [1, 64, LONGEST_BLOCK][self.below(3) as usize];
                ballot(token_known, Asks::Fill { fence, ttl, block })
            }
            _ => {
                // 0 would stand for any attempt.
                let attempt = (self.below(4) > 0).then_some(near.max(1));
                let (leaves, tells) = (self.below(2) == 0, self.below(4) > 0);
                ballot(token_known, Asks::Give { ttl: TTL, attempt, leaves, tells })
            }
        };
        (u32::from_str_radix(&ballot.token.to_string(), 16).unwrap(), ballot)
    }

    fn lose(
        &mut self,
        what: &str,
        words: &[&str],
        then: impl FnOnce(&mut ModelNode),
    ) -> (String, Result<(), String>) {
        self.node.cmd(words);
        then(&mut self.model);
        (what.to_owned(), Ok(()))
    }

    fn ask(&mut self, client: u32, ballot: Ballot<'_>, is_open: bool) -> Result<(), String> {
        let number = (client % u32::from(CHANNELS)) as Channel;
        let name = channel(number.into());
        let before = self.node.time();
        let answer = self.node.try_ask(ballot, Wakeup { channel: name.as_bytes().into(), is_open });
        let mut heard = Vec::new();
        for (channel, wakeup) in (0..).zip(&mut self.listener) {
            for notice in wakeup.as_mut().map_or(Vec::new(), Listener::heard) {
                match notice {
                    Notice::Free { name, token } if name == NAME => {
                        heard.push((channel, token));
                    }
                    notice => return Err(format!("{notice:?}")),
                }
            }
        }
        let now = match &answer {
            Ok((_, server)) if *server > 0 => *server,
            // A new place has the time as its ticket, unless others have that or a later one.
            Ok((Said::Busy { ticket, .. }, _)) if (before..=self.node.time()).contains(ticket) => {
                *ticket
            }
            _ => before,
        };
        let listener = &self.listener;
        let hears = |channel: Channel| listener[usize::from(channel)].is_some();
        let wakeup = ModelWakeup { channel: Some(number), is_open };
        let (expected, mut told) = self.model.answer(now, &ballot, wakeup, &hears);
        let said = answer.as_ref().ok().map(|(said, _)| *said);
        if !alike(said, expected) {
            return Err(format!("{answer:?} and not {expected:?}"));
        }
        told.sort_by_key(|(channel, _)| *channel);
        if told != heard {
            return Err(format!("told {heard:?} and not {told:?}"));
        }
        match said {
            Some(Said::Granted { fence }) => self.fence = fence,
            Some(Said::Busy { ticket, .. }) if ticket > 0 => self.tickets[client as usize] = ticket,
            _ => {}
        }
        Ok(())
    }

    /// What is kept.
    fn compare(&mut self) -> Result<(), String> {
        let node = &self.node;
        let now = node.time();
        let lock = node.text(&["GET", "n"]).map(|value| Held {
            token: value.parse().ok(),
            until: now + node.number(&["PTTL", "n"]) as u64 * 1000,
        });
        let same_lock = match (&lock, &self.model.lock) {
            (Some(lock), Some(held)) => lock.token == held.token && near(lock.until, held.until),
            (None, None) => true,
            _ => false,
        };
        let side = node.side().map(|(queued, last, attempt, owner)| Side {
            queued,
            last,
            grant: (last > 0).then(|| (attempt, token(owner))),
        });
        let members: Vec<(String, u64)> =
            redis::from_redis_value(node.cmd(&["ZRANGE", QUEUE, "0", "-1", "WITHSCORES"])).unwrap();
        let shown = |entry: &Entry| {
            (format!("{} 0 {}", entry.token, channel(entry.channel.into())), entry.ticket)
        };
        let expected: Vec<_> = self.model.queue.iter().map(shown).collect();
        let marker = node.marker();
        let same_marker = match (&marker, &self.model.marker) {
            (Some((run, over, longest)), Some(model)) => {
                (*run == self.run) == (model.run == 0)
                    && near(*over, model.over)
                    && *longest == millis(model.longest)
            }
            (None, None) => true,
            _ => false,
        };
        if !same_lock || side != self.model.side || members != expected || !same_marker {
            let model = &self.model;
            return Err(format!("{lock:?} {side:?} {members:#?} {marker:?} and not {model:#?}"));
        }
        Ok(())
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random.up_to(Duration::from_nanos(limit)).as_nanos() as u64 % limit
    }
}

fn alike(one: Option<Said>, two: Option<Said>) -> bool {
    match (one, two) {
        (
            Some(Said::Busy { free_in: left, rank, ticket, ours, .. }),
            Some(Said::Busy { free_in, rank: place, ticket: of, ours: known, .. }),
        ) => (rank, ticket, ours) == (place, of, known) && left.abs_diff(free_in) < BLUR,
        (Some(Said::Quarantined { left }), Some(Said::Quarantined { left: known })) => {
            left.abs_diff(known) < BLUR
        }
        (one, two) => one == two,
    }
}

fn near(one: u64, two: u64) -> bool {
    Duration::from_micros(one.abs_diff(two)) < BLUR
}
