//! Random walks on which a server and its model have to say the same, tell the same, and keep the
//! same.

use super::*;
use crate::explore::models::redis::{Entry, Flaws, ModelServer, Side};
use crate::explore::models::{Channel, Held, ModelWakeup};
use crate::jitter::Jitter;
use crate::store::millis;
use crate::store::redis::dialect::world::Listener;

/// So long that nothing ends during a walk, and so far apart that nobody takes one for another.
const TTLS: [Duration; 3] =
    [Duration::from_secs(200), Duration::from_secs(2000), Duration::from_secs(20_000)];
const WIDE: Duration = Duration::from_secs(1000);
/// How much a server's ttl may differ from the model's: whole milliseconds, and a slow machine.
const BLUR: u64 = 90_000_000;

const CHANNELS: Channel = 4;
const TOKENS: u32 = 8;

#[test]
fn the_model_and_a_server_say_the_same() {
    for seed in 0..12 {
        Walk::new(seed, Flaws::default()).go(400).unwrap();
    }
}

#[test]
fn the_model_and_a_server_say_the_same_where_nobody_waits() {
    for seed in 0..6 {
        Walk { is_everyday: true, ..Walk::timed(seed) }.go(400).unwrap();
    }
}

#[test]
fn the_model_and_a_server_say_the_same_where_fences_are_its_time() {
    for seed in 0..12 {
        Walk::timed(seed).go(400).unwrap();
    }
}

#[test]
fn a_model_that_is_wrong_on_purpose_is_found_out() {
    let none = Flaws::default();
    for flaws in [
        Flaws { full_ttl_at_hand_over: true, ..none },
        Flaws { undo_without_hand_over: true, ..none },
    ] {
        let found = (0..12).any(|seed| Walk::new(seed, flaws).go(400).is_err());
        assert!(found, "{flaws:?}");
    }
}

struct Walk {
    world: World,
    model: ModelServer,
    random: Jitter,
    /// Nobody waits.
    is_everyday: bool,
    /// Fences are the server's time, which is not told by everything.
    is_timed: bool,
    listener: Vec<Option<Listener>>,
    /// What each token was last told: its ticket, and its first fence and their number.
    tickets: Vec<u64>,
    grants: Vec<(u64, u32)>,
}

impl Walk {
    fn new(seed: u64, flaws: Flaws) -> Walk {
        let world = World::new().with(native(WIDE, None));
        // Fences that are ahead of the clock go on by themselves, whatever the time.
        let ahead = (1 << 52) + 7;
        world.cmd(&["SET", SIDE, &format!("0 {ahead} 0 0"), "PX", "90000000"]);
        let mut model = ModelServer::new(WIDE, flaws);
        model.side = Some(Side { last: ahead, grant: None, queued: false });
        Walk {
            world,
            model,
            random: Jitter::seeded(seed),
            is_everyday: false,
            is_timed: false,
            listener: (0..CHANNELS).map(|_| None).collect(),
            tickets: vec![0; TOKENS as usize],
            grants: vec![(0, 0); TOKENS as usize],
        }
    }

    fn timed(seed: u64) -> Walk {
        let mut walk = Walk::new(seed, Flaws::default());
        let last = walk.world.time();
        let side = format!("0 {last} {last} {}", token(0));
        walk.world.cmd(&["SET", SIDE, &side, "PX", "90000000"]);
        let grant = Some((token(0), last));
        walk.model.side = Some(Side { last, grant, queued: false });
        Walk { is_timed: true, ..walk }
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
        let client = self.below(TOKENS.into()) as u32;
        let (name, token, ttl) = (NAME, token(client), TTLS[client as usize % 3]);
        let block = 1 + self.below(3) as u32;
        let (first, fences) = self.grants[client as usize];
        // To which a lock is passed on: nobody ever waited under it.
        let passed = super::token(TOKENS + client % 2);
        let request = match self.below(16) {
            0..=4 if self.is_everyday => {
                let block = block.saturating_sub(1).max(1);
                Request::Take { name, token, ttl, place: Place::Try, block }
            }
            0..=4 => {
                let ticket = match self.below(3) {
                    0 => 0,
                    1 => self.tickets[client as usize],
                    _ => {
                        let other = self.below(TOKENS.into());
                        self.tickets[other as usize]
                    }
                };
                Request::Take { name, token, ttl, place: Place::Join(ticket), block }
            }
            5 => Request::Take { name, token, ttl, place: Place::Try, block },
            6 => {
                let fence = first + self.below(2);
                let ttl = TTLS[self.below(3) as usize];
                Request::Extend { name, token, fence, ttl, reach: Reach::Claim }
            }
            7 => {
                let token = if self.below(2) == 0 { token } else { passed };
                let reach = [Reach::Grow, Reach::Set, Reach::Pass(passed)][self.below(3) as usize];
                let ttl = TTLS[self.below(3) as usize];
                Request::Extend { name, token, fence: first, ttl, reach }
            }
            8 => Request::Give { name, token: passed, fence: first, ttl },
            9 => Request::Give { name, token, fence: 0, ttl },
            10..=12 => {
                // Now and then one too early or too late for the grant.
                let fence = (first + self.below(u64::from(fences) + 2)).saturating_sub(1);
                Request::Give { name, token, fence, ttl }
            }
            13 => {
                self.model.lock = None;
                self.world.cmd(&["DEL", "n"]);
                return ("the lock ends".to_owned(), Ok(()));
            }
            14 => {
                let until = self.world.time() + 400_000_000;
                self.model.seize(until);
                self.world.cmd(&["SET", "n", "theirs", "PX", "400000"]);
                return ("a foreign client takes the lock".to_owned(), Ok(()));
            }
            _ => {
                let channel = self.below(CHANNELS.into()) as u32;
                let wakeup = &mut self.listener[channel as usize];
                match wakeup.take() {
                    Some(open) => open.close(),
                    None => *wakeup = Some(self.world.listen(channel)),
                }
                return (format!("{channel} opens or closes its wakeup"), Ok(()));
            }
        };
        let is_open = self.below(8) > 0;
        let what = format!("{request:?}, open: {is_open}");
        let result = self.ask(client, request, is_open);
        (what, result)
    }

    fn ask(&mut self, client: u32, request: Request<'_>, is_open: bool) -> Result<(), String> {
        let number = (client % u32::from(CHANNELS)) as Channel;
        let name = channel(number.into());
        let before = self.world.time();
        let wakeup = Wakeup { channel: name.as_bytes().into(), is_open };
        let (reply, server) = self.world.try_ask(request, wakeup).unwrap();
        let mut heard: Vec<_> = self
            .listener
            .iter_mut()
            .map(|wakeup| wakeup.as_mut().map_or(Vec::new(), Listener::heard))
            .collect();
        // When it was, as far as anything tells.
        let notices = heard.iter().flatten().map(|notice| match notice {
            Notice::Granted { server, .. } => *server,
            Notice::Free { .. } => 0,
        });
        let now = notices.chain([server]).max().filter(|now| *now > 0).unwrap_or(before);
        let listener = &self.listener;
        let hears = |channel: Channel| listener[usize::from(channel)].is_some();
        let wakeup = ModelWakeup { channel: Some(number), is_open };
        let (expected, told) = self.model.answer(now, &request, wakeup, &hears);
        if !alike(&reply, &expected) {
            return Err(format!("{reply:?} and not {expected:?}"));
        }
        for (channel, notice) in told {
            let heard = &mut heard[usize::from(channel)];
            if heard.is_empty() || heard.remove(0) != notice {
                return Err(format!("{channel} was not told {notice:?}"));
            }
            if let Notice::Granted { token, fence, block, .. } = notice {
                let client = u32::from_str_radix(&token.to_string(), 16).unwrap();
                self.grants[client as usize] = (fence, block);
            }
        }
        if heard.iter().any(|heard| !heard.is_empty()) {
            return Err(format!("too much was told: {heard:?}"));
        }
        match reply {
            Reply::Granted { fence, block } => self.grants[client as usize] = (fence, block),
            Reply::Busy { ticket, .. } if ticket > 0 => self.tickets[client as usize] = ticket,
            _ => {}
        }
        Ok(())
    }

    /// What is kept.
    fn compare(&mut self) -> Result<(), String> {
        let lock = self.world.text(&["GET", "n"]).map(|value| Held {
            token: value.parse().ok(),
            until: self.world.time() + self.world.number(&["PTTL", "n"]) as u64 * 1000,
        });
        let same_lock = match (&lock, &self.model.lock) {
            (Some(lock), Some(held)) => {
                lock.token == held.token && lock.until.abs_diff(held.until) < BLUR
            }
            (None, None) => true,
            _ => false,
        };
        let (last, owner, first, queued) = self.world.side().unwrap();
        let grant = (first > 0).then(|| (token(owner), first));
        let side = Some(Side { last, grant, queued });
        if let (true, Some(real), Some(model)) = (self.is_timed, &side, &mut self.model.side) {
            // A waiter that is gone was reserved fences for, at a time that nobody tells.
            let near = real.last.abs_diff(model.last) < BLUR;
            let same = real.grant.map(|grant| grant.0) == model.grant.map(|grant| grant.0);
            if near && same && real.queued == model.queued {
                model.clone_from(real);
            }
        }
        let members: Vec<(String, u64)> =
            redis::from_redis_value(self.world.cmd(&["ZRANGE", QUEUE, "0", "-1", "WITHSCORES"]))
                .unwrap();
        let shown = |entry: &Entry| {
            let (span, channel) = (millis(entry.ttl.min(WIDE)), channel(entry.channel.into()));
            (format!("{} {span} {channel}", entry.token), entry.ticket)
        };
        let expected: Vec<_> = self.model.queue.iter().map(shown).collect();
        if !same_lock || side != self.model.side || members != expected {
            return Err(format!("{lock:?} {side:?} {members:#?} and not {:#?}", self.model));
        }
        if !members.is_empty() && !queued {
            return Err(format!("nobody looks into the queue of {members:#?}"));
        }
        self.world.assert_everything_ends();
        Ok(())
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random.up_to(Duration::from_nanos(limit)).as_nanos() as u64 % limit
    }
}

fn alike(one: &Reply, two: &Reply) -> bool {
    match (*one, *two) {
        (
            Reply::Busy { free_in: left, ticket, rank, ours },
            Reply::Busy { free_in, ticket: of, rank: place, ours: known },
        ) => (ticket, rank, ours) == (of, place, known) && near(left, free_in),
        (one, two) => one == two,
    }
}

fn near(one: Duration, two: Duration) -> bool {
    one.abs_diff(two) < Duration::from_micros(BLUR)
}
