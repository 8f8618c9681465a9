//! What happens to the nodes: each has its own bad luck, and at most so many have it at one time.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::nodes::Node;
use super::{SITES, ms};
use kit::history::now;
use kit::{Cut, Dice, Offset};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    KilledAndEmpty,
    KilledWithFile,
    Stopped,
    Cut,
    CutReplies,
    Torn,
    Slow,
    ClockMoved,
    ClientStopped,
    ClientClockMoved,
    SiteFar,
}

/// Something that happened, and when it began.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub at: Duration,
    pub kind: Kind,
}

/// What weather there is.
#[derive(Clone)]
pub struct Climate {
    /// What may happen to a node.
    pub kinds: Vec<Kind>,
    /// The longest a node is well.
    pub calm: Duration,
    /// The longest that something lasts.
    pub trouble: Duration,
    /// How long after it came back with less than it had a node still counts as one in trouble.
    pub rest: Duration,
    /// How many may be in trouble at one time.
    pub most: usize,
    /// Now and then one more than that.
    pub beyond: bool,
    /// How often, if at all, most of the nodes are killed at about one time.
    pub disaster: Option<Duration>,
}

/// How long a disaster goes on.
const DISASTER: Duration = ms(100);

/// Goes on until it is over; then all nodes are well again.
pub fn rage(
    nodes: &mut [Node],
    climate: &Climate,
    mut dice: Dice,
    over: &AtomicBool,
) -> Vec<Fault> {
    let in_trouble = AtomicUsize::new(0);
    let mut faults: Vec<_> = std::thread::scope(|scope| {
        let sufferers: Vec<_> = nodes
            .iter_mut()
            .map(|node| {
                let (dice, in_trouble) = (dice.split(), &in_trouble);
                scope.spawn(move || Sufferer { node, climate, dice, in_trouble, over }.suffer())
            })
            .collect();
        sufferers.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    faults.sort_by_key(|fault| fault.at);
    faults
}

/// By less than this.
pub fn some_offset(dice: &mut Dice, most: Duration) -> Offset {
    let span = dice.ms_below(most.as_millis() as u64);
    if dice.once_in(2) { Offset::Ahead(span) } else { Offset::Behind(span) }
}

struct Sufferer<'a> {
    node: &'a mut Node,
    climate: &'a Climate,
    dice: Dice,
    in_trouble: &'a AtomicUsize,
    over: &'a AtomicBool,
}

impl Sufferer<'_> {
    fn suffer(mut self) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut disaster = self.climate.disaster.map(|every| Instant::now() + every);
        loop {
            self.pause(self.climate.calm);
            if self.over.load(Ordering::Relaxed) {
                break;
            }
            if let (Some(at), Some(every)) = (disaster, self.climate.disaster)
                && Instant::now() + self.climate.calm > at
            {
                disaster = Some(at + every);
                // Who was in trouble of its own when it came has been spared.
                if Instant::now() < at + DISASTER {
                    self.sleep(at.saturating_duration_since(Instant::now()));
                    faults.extend(self.perish());
                }
                continue;
            }
            if self.dice.once_in(8) {
                self.node.kept = Some(self.node.server.keep_file());
            }
            // That is no trouble for anybody, as far as they know.
            if self.node.is_clocked {
                faults.push(Fault { at: now(), kind: Kind::ClockMoved });
                self.move_clock();
                continue;
            }
            if !self.may_begin() {
                continue;
            }
            let kinds = &self.climate.kinds;
            let kind = kinds[self.dice.below(kinds.len() as u64) as usize];
            faults.push(Fault { at: now(), kind });
            self.endure(kind);
            self.in_trouble.fetch_sub(1, Ordering::SeqCst);
        }
        self.node.mend();
        faults
    }

    /// Together with most of the others.
    fn perish(&mut self) -> Option<Fault> {
        self.pause(DISASTER);
        let spared = self.dice.below(10) >= 7;
        if spared || self.over.load(Ordering::Relaxed) {
            return None;
        }
        let fault = Fault { at: now(), kind: Kind::KilledAndEmpty };
        self.node.server.kill();
        self.node.server.start_again_empty();
        Some(fault)
    }

    fn endure(&mut self, kind: Kind) {
        match kind {
            Kind::KilledAndEmpty | Kind::KilledWithFile => {
                self.node.server.kill();
                // Mostly it is there again at once.
                let gone = self.climate.trouble / if self.dice.once_in(4) { 1 } else { 8 };
                self.pause(gone);
                match &self.node.kept {
                    Some(file) if kind == Kind::KilledWithFile => {
                        self.node.server.start_again_with(file);
                    }
                    _ => self.node.server.start_again_empty(),
                }
                self.sleep(self.climate.rest);
            }
            Kind::Stopped => {
                self.node.server.stop();
                self.pause(self.climate.trouble);
                self.node.server.cont();
            }
            Kind::Cut | Kind::CutReplies | Kind::Torn => {
                let what = if kind == Kind::CutReplies { Cut::Replies } else { Cut::Both };
                let links = self.some_links();
                links.iter().for_each(|link| self.node.links[*link].cut_only(what));
                self.pause(self.climate.trouble);
                for link in links {
                    if kind == Kind::Torn {
                        self.node.links[link].tear();
                    }
                    self.node.links[link].heal();
                }
            }
            Kind::Slow => {
                let (links, delay) = (self.some_links(), self.dice.ms_below(120));
                links.iter().for_each(|link| self.node.links[*link].slow(delay));
                self.pause(self.climate.trouble * 2);
                links.iter().for_each(|link| self.node.links[*link].slow(ms(0)));
            }
            other => unreachable!("{other:?} is no trouble of a node"),
        }
    }

    fn move_clock(&mut self) {
        // Far beyond every ttl.
        self.node.server.shift_clock(some_offset(&mut self.dice, ms(120_000)));
    }

    /// Of one site, or of all.
    fn some_links(&mut self) -> Vec<usize> {
        match self.dice.below(SITES as u64 + 1) as usize {
            SITES => (0..SITES).collect(),
            site => vec![site],
        }
    }

    fn may_begin(&mut self) -> bool {
        let one_more = usize::from(self.climate.beyond && self.dice.once_in(10));
        let most = self.climate.most + one_more;
        let more = |now: usize| (now < most).then_some(now + 1);
        self.in_trouble.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    /// For a random part of this.
    fn pause(&mut self, most: Duration) {
        let most = most.as_millis() as u64;
        let length = self.dice.ms_below(most + 1);
        self.sleep(length);
    }

    /// Not for longer than there is weather.
    fn sleep(&self, length: Duration) {
        let end = Instant::now() + length;
        while !self.over.load(Ordering::Relaxed) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            std::thread::sleep(left.min(ms(20)));
        }
    }
}
