//! Takes all steps, breadth first.

use std::collections::HashSet;
use std::fmt;

use super::hearing::Decisions;
use super::setup::Setup;
use super::world::{Broken, Event, Step, World};

/// What was seen.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) states: usize,
    pub(super) steps: usize,
    /// Attempts that succeeded: in one round trip, in two, and after another one did.
    pub(super) at_once: usize,
    pub(super) raised: usize,
    pub(super) later: usize,
    pub(super) refused: usize,
    /// Keys that all nodes came to have because the last one was told.
    pub(super) whole: usize,
    /// Calls that returned knowing that all nodes have the key.
    pub(super) returned: usize,
    /// Of every state.
    pub(super) exhausted: bool,
}

impl Seen {
    pub(super) fn add(&mut self, other: &Seen) {
        self.states += other.states;
        self.steps += other.steps;
        self.at_once += other.at_once;
        self.raised += other.raised;
        self.later += other.later;
        self.refused += other.refused;
        self.whole += other.whole;
        self.returned += other.returned;
    }

    fn note(&mut self, event: Event) {
        match event {
            Event::Nothing => {}
            Event::Refusal => self.refused += 1,
            Event::Whole => self.whole += 1,
            Event::Returned => self.returned += 1,
            Event::Success { before, raised } => {
                *(if raised { &mut self.raised } else { &mut self.at_once }) += 1;
                self.later += usize::from(before > 0);
            }
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Seen { states, steps, at_once, raised, later, refused, whole, returned, exhausted } =
            self;
        let all = if *exhausted { " (all there are)" } else { "" };
        write!(
            f,
            "{states} states{all}, {steps} steps, {at_once} successes at once and {raised} after \
             a raise, {later} after another's, {refused} refusals, {whole} keys stored on all nodes, \
             {returned} calls that waited for that"
        )
    }
}

/// A run after which something does not hold.
pub(super) struct Found {
    steps: Vec<Step>,
    pub(super) what: Broken,
}

/// All states, until there are so many.
pub(super) fn breadth_first(setup: &Setup, most: usize) -> Result<Seen, Found> {
    let mut seen = Seen::default();
    let mut known = HashSet::new();
    let decisions = Decisions::new(setup.flaw);
    let mut parents: Vec<(u32, Step)> = vec![(0, Step::Start(0))];
    let mut level = vec![(World::new(setup), 0u32)];
    while !level.is_empty() && known.len() < most {
        let mut next = Vec::new();
        for (world, number) in level {
            for step in world.steps(setup, &decisions) {
                let mut after = world.clone();
                match after.apply(&step, setup) {
                    Ok(None) => continue,
                    Ok(Some(event)) => seen.note(event),
                    Err(what) => return Err(Found::new(&parents, number, step, what)),
                }
                seen.steps += 1;
                if known.insert(after.fingerprint()) {
                    parents.push((number, step));
                    next.push((after, parents.len() as u32 - 1));
                }
            }
            if known.len() >= most {
                break;
            }
        }
        level = next;
    }
    seen.states = known.len();
    seen.exhausted = known.len() < most;
    Ok(seen)
}

impl Found {
    fn new(parents: &[(u32, Step)], mut at: u32, last: Step, what: Broken) -> Found {
        let mut steps = vec![last];
        while at != 0 {
            let (parent, step) = &parents[at as usize];
            steps.push(step.clone());
            at = *parent;
        }
        steps.reverse();
        Found { steps, what }
    }
}

/// Tells the whole run, from its beginning.
impl fmt::Debug for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{}", self.what)?;
        self.steps.iter().try_for_each(|step| writeln!(f, "  {step:?}"))
    }
}
