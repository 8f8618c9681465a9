//! Who held a lock when, as the holders themselves saw it, and what is wrong with that.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Since the machine started: the same for all processes.
pub fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).unwrap().into()
}

/// When a holder began to ask, and from when it had its lease until it was last seen valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    pub asked: Duration,
    pub from: Duration,
    pub until: Duration,
    pub fence: u64,
}

impl Hold {
    /// Of a holder of whom no more is known than that it had the lease at this moment.
    pub fn at(asked: Duration, moment: Duration, fence: u64) -> Hold {
        Hold { asked, from: moment, until: moment + Duration::from_nanos(1), fence }
    }

    /// To be called when the lock was granted, at once.
    pub fn begin(asked: Duration, fence: u64) -> Hold {
        let from = now();
        Hold { asked, from, until: from, fence }
    }

    /// Whether the lease is valid now. The last look must come before the release is called.
    pub fn look(&mut self, is_valid: impl FnOnce() -> bool) -> bool {
        // The moment is taken first: who is valid after it was valid at it.
        let moment = now();
        let valid = is_valid();
        if valid {
            self.until = moment;
        }
        valid
    }

    /// One line, for another process.
    pub fn to_line(self) -> String {
        let [asked, from, until] = [self.asked, self.from, self.until].map(|at| at.as_nanos());
        format!("{asked} {from} {until} {}", self.fence)
    }

    /// `None` where it is no such line.
    pub fn from_line(line: &str) -> Option<Hold> {
        let numbers: Vec<u64> =
            line.split(' ').map(|word| word.parse().ok()).collect::<Option<_>>()?;
        let [asked, from, until, fence] = numbers[..] else { return None };
        let [asked, from, until] = [asked, from, until].map(Duration::from_nanos);
        Some(Hold { asked, from, until, fence })
    }
}

/// Two holds that cannot both be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Both relied on their leases at one time.
    Overlap(Hold, Hold),
    /// They had the same fence.
    Twice(Hold, Hold),
    /// The second one asked when the first one had its lease already, and got a smaller fence.
    OutOfOrder(Hold, Hold),
    /// The second one had its lease when the first one's was over, and had a smaller fence. That
    /// may be where clocks of servers jump, and nowhere else.
    Falling(Hold, Hold),
}

/// Everything that is wrong with the holds of one name: each that is, with another one.
pub fn judge(holds: &[Hold]) -> Vec<Wrong> {
    let by_from = sorted(holds, |hold| (hold.from, hold.until));
    let mut wrong = Vec::new();
    let mut last: Option<Hold> = None;
    // Nobody relied on a lease that was never seen valid.
    for hold in by_from.iter().copied().filter(|hold| hold.until > hold.from) {
        let before = last.filter(|last| last.until > hold.from);
        wrong.extend(before.map(|before| Wrong::Overlap(before, hold)));
        last = last.filter(|last| last.until > hold.until).or(Some(hold));
    }

    let by_fence = sorted(holds, |hold| (hold.fence, hold.from));
    let twice = by_fence.windows(2).filter(|pair| pair[0].fence == pair[1].fence);
    wrong.extend(twice.map(|pair| Wrong::Twice(pair[0], pair[1])));

    let by_asked = sorted(holds, |hold| (hold.asked, hold.from));
    let out_of_order = falls(&by_from, |hold| hold.from, &by_asked, |hold| hold.asked);
    let by_until = sorted(holds, |hold| (hold.until, hold.from));
    let mut falling = falls(&by_until, |hold| hold.until, &by_from, |hold| hold.from);
    falling.retain(|(_, hold)| out_of_order.iter().all(|(_, found)| found != hold));
    wrong.extend(out_of_order.into_iter().map(|(one, two)| Wrong::OutOfOrder(one, two)));
    wrong.extend(falling.into_iter().map(|(one, two)| Wrong::Falling(one, two)));
    wrong
}

fn sorted<K: Ord>(holds: &[Hold], key: impl Fn(&Hold) -> K) -> Vec<Hold> {
    let mut holds = holds.to_vec();
    holds.sort_by_key(key);
    holds
}

/// Each of the second ones before which, by these two moments, one with a larger fence was.
fn falls(
    ones: &[Hold],
    was: impl Fn(&Hold) -> Duration,
    twos: &[Hold],
    came: impl Fn(&Hold) -> Duration,
) -> Vec<(Hold, Hold)> {
    let (mut ones, mut largest, mut found) = (ones.iter().peekable(), None::<Hold>, Vec::new());
    for two in twos {
        while let Some(one) = ones.next_if(|one| was(one) <= came(two)) {
            largest = largest.filter(|largest| largest.fence > one.fence).or(Some(*one));
        }
        found.extend(largest.filter(|one| one.fence > two.fence).map(|one| (one, *two)));
    }
    found
}
