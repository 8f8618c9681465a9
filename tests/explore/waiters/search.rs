//! Takes steps: all of them, breadth first, or some of them at random.

use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use super::setup::Setup;
use super::step::{Choices, Step};
use super::world::{Broken, World};

/// What was seen.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) states: usize,
    pub(super) steps: usize,
    pub(super) settled: usize,
    /// The longest run, in steps.
    pub(super) depth: usize,
    /// Every state within the horizon.
    pub(super) exhausted: bool,
}

impl Seen {
    pub(super) fn add(&mut self, other: &Seen) {
        self.states += other.states;
        self.steps += other.steps;
        self.settled += other.settled;
        self.depth = self.depth.max(other.depth);
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Seen { states, steps, settled, depth, exhausted } = self;
        let all = if *exhausted { " (all there are)" } else { "" };
        write!(f, "{states} states{all}, {steps} steps, {depth} deep, {settled} to their end")
    }
}

/// A run after which something does not hold.
pub(super) struct Found {
    setup: Setup,
    /// Of the walk.
    pub(super) seed: u64,
    steps: Vec<Step>,
    pub(super) what: Broken,
}

/// One in so many states is followed to its end.
const SETTLED: u128 = 16;

/// All states, until there are so many.
pub(super) fn breadth_first(setup: &Setup, most: usize) -> Result<Seen, Box<Found>> {
    let mut seen = Seen::default();
    let mut known = States::default();
    let mut parents: Vec<(u32, Step)> = vec![(0, Step::Pass(0))];
    let mut level = vec![(World::new(setup.clone()), 0u32)];
    let found = |world: u32, parents: &[(u32, Step)], last: &[Step], what| {
        let mut steps = last.to_vec();
        steps.reverse();
        let mut at = world;
        while at != 0 {
            let (parent, step) = parents[at as usize];
            steps.push(step);
            at = parent;
        }
        steps.reverse();
        Err(Box::new(Found { setup: setup.clone(), seed: 0, steps, what }))
    };
    while !level.is_empty() && known.len() < most {
        let mut next = Vec::new();
        for (world, number) in level {
            for step in steps_of(&world) {
                seen.steps += 1;
                let mut after = world.clone();
                if let Err(what) = after.apply(step) {
                    return found(number, &parents, &[step], what);
                }
                let print = fingerprint(&after);
                if !known.insert(print) {
                    continue;
                }
                parents.push((number, step));
                if print.is_multiple_of(SETTLED) {
                    seen.settled += 1;
                    let mut end = vec![step];
                    if let Err(what) = after.clone().settle(&mut end) {
                        return found(number, &parents, &end, what);
                    }
                }
                if !after.is_over() {
                    next.push((after, parents.len() as u32 - 1));
                }
            }
            if known.len() >= most {
                break;
            }
        }
        seen.depth += 1;
        level = next;
    }
    seen.states = known.len();
    seen.exhausted = level.is_empty();
    Ok(seen)
}

fn steps_of(world: &World) -> Vec<Step> {
    let Choices { prompt, free, faults } = world.choices();
    let quiet = prompt.is_empty();
    let mut steps = prompt;
    steps.extend(free);
    steps.extend(faults);
    if quiet && let Some(next) = world.next_moment() {
        steps.push(Step::Pass(next));
    }
    steps
}

/// Random runs, one for each seed, until so many states are known.
pub(super) fn walks(
    setup: &Setup,
    seeds: std::ops::Range<u64>,
    most: usize,
) -> Result<Seen, Box<Found>> {
    let mut seen = Seen::default();
    let mut known = States::default();
    for seed in seeds {
        if known.len() >= most {
            break;
        }
        let mut random = Random(seed);
        let mut world = World::new(setup.clone());
        let mut steps = Vec::new();
        let found = |mut steps: Vec<Step>, mut end: Vec<Step>, what| {
            steps.append(&mut end);
            Err(Box::new(Found { setup: setup.clone(), seed, steps, what }))
        };
        while let Some(step) = random.step(&world) {
            steps.push(step);
            if let Err(what) = world.apply(step) {
                return found(steps, Vec::new(), what);
            }
            known.insert(fingerprint(&world));
            if world.is_over() {
                break;
            }
            if random.one_in(64) {
                seen.settled += 1;
                let mut end = Vec::new();
                if let Err(what) = world.clone().settle(&mut end) {
                    return found(steps, end, what);
                }
            }
        }
        seen.settled += 1;
        let mut end = Vec::new();
        if let Err(what) = world.settle(&mut end) {
            return found(steps, end, what);
        }
        seen.steps += steps.len();
        seen.depth = seen.depth.max(steps.len());
    }
    seen.states = known.len();
    Ok(seen)
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.next().is_multiple_of(many)
    }

    fn pick(&mut self, steps: &[Step]) -> Option<Step> {
        let count = steps.len() as u64;
        (count > 0).then(|| steps[(self.next() % count) as usize])
    }

    /// Faults are rare and time passes now and then, so that there is something to disturb.
    fn step(&mut self, world: &World) -> Option<Step> {
        let Choices { prompt, free, faults } = world.choices();
        if self.one_in(12)
            && let Some(fault) = self.pick(&faults)
        {
            return Some(fault);
        }
        if !prompt.is_empty() && !self.one_in(5) {
            return self.pick(&prompt);
        }
        if !free.is_empty() && (!prompt.is_empty() || self.one_in(2)) {
            return self.pick(&free);
        }
        if !prompt.is_empty() {
            return self.pick(&prompt);
        }
        match world.next_moment() {
            // Not everything happens just when something is due.
            Some(next) if self.one_in(3) => {
                let micros = (next - world.now) / 1000;
                Some(Step::Pass(world.now + (self.next() % (micros + 1)) * 1000))
            }
            Some(next) => Some(Step::Pass(next)),
            None => self.pick(&free),
        }
    }
}

/// Tells the whole run, from its beginning.
impl fmt::Debug for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{}; seed {}; {:?}", self.what, self.seed, self.setup)?;
        let mut world = World::new(self.setup.clone());
        for (at, step) in self.steps.iter().enumerate() {
            if world.choices_hold(*step) {
                writeln!(f, "{at:>4}  {}", world.tell(*step))?;
            }
            if let Err(what) = world.apply(*step) {
                return writeln!(f, "      {what}");
            }
        }
        writeln!(f, "      {}", self.what)
    }
}

#[derive(Default)]
struct States(HashSet<u128, BuildHasherDefault<AsIs>>);

impl States {
    fn insert(&mut self, print: u128) -> bool {
        self.0.insert(print)
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// 128 bits in which two different states never agree, as far as anybody can expect.
fn fingerprint(world: &World) -> u128 {
    let mut print = Print(0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344);
    world.hash(&mut print);
    u128::from(print.0) << 64 | u128::from(print.finish())
}

/// Two lanes of multiplication and rotation.
struct Print(u64, u64);

impl Hasher for Print {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        self.1 = (self.1.rotate_left(23) ^ word).wrapping_mul(0xd6e8_feb8_6659_fd93);
        self.1 ^= self.1 >> 32;
    }

    fn write_u8(&mut self, word: u8) {
        self.write_u64(word.into());
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }

    fn write_isize(&mut self, word: isize) {
        self.write_u64(word as u64);
    }

    fn finish(&self) -> u64 {
        (self.1 ^ self.0 >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }
}

/// Fingerprints need no hashing.
#[derive(Default)]
struct AsIs(u64);

impl Hasher for AsIs {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes.iter().take(8) {
            self.0 = self.0 << 8 | u64::from(*byte);
        }
    }

    fn write_u128(&mut self, print: u128) {
        self.0 = print as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
