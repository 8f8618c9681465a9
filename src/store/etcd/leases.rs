//! etcd's leases: each grant has one, which ends it if nobody renews it. Leases that are free again
//! are kept for the next grants, since to make one is a write.
//!
//! A lease has a little more time than was asked for, so that one that was renewed a moment ago is as
//! good as a new one. A lease of which something is not known is never used again: what is still on
//! its way could put a key under it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::dial::call;
use super::fault::{self, End};
use super::messages::{self, Lives, MOST_OPS};
use super::wire::Wire;
use super::{EtcdStore, UNTOLD};
use crate::clock::{Deadline, Moment};
use crate::error::Error;
use crate::store::{Failure, Lane};
use crate::sync::Mutex;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lease {
    pub(super) id: i64,
    /// What was asked for, in seconds.
    seconds: i64,
    pub(super) span: Duration,
    /// It ends no earlier than its span after this moment.
    pub(super) since: Moment,
    /// Begun anew since a later moment, by the word of a server that may have been the leader of this
    /// term, or may not have been any more.
    renewed: Option<(Moment, u64)>,
}

/// The seconds of what nothing ends.
const ENDLESS: i64 = UNTOLD.as_secs() as i64;
/// So many free ones are kept.
const MOST: usize = 32;
/// One that has less left than this may be over by now.
const LEAST: Duration = Duration::from_millis(500);

impl Lease {
    /// One whose whole life is not known.
    pub(super) fn foreign(id: i64) -> Lease {
        Lease { id, seconds: 0, span: Duration::ZERO, since: Moment::ZERO, renewed: None }
    }

    pub(super) fn lives_until(&self) -> Moment {
        self.since.plus(self.span)
    }

    pub(super) fn has_ended(&self, now: Moment) -> bool {
        now >= self.lives_until()
    }

    /// It has begun anew since then, if the server that says so in this term was the leader.
    pub(super) fn renewed(&mut self, since: Moment, term: u64) {
        self.renewed = Some((since, term));
    }

    /// A majority has answered later, in this term: no other leader had come by then.
    pub(super) fn confirm(&mut self, term: u64) -> bool {
        match self.renewed.take_if(|(_, said)| *said == term) {
            Some((since, _)) => self.since = self.since.max(since),
            None => return false,
        }
        true
    }

    /// A grant for this ttl may count from here, asked for at `sent`. A server's clock that is a hundredth
    /// too fast is so for the whole life of the lease, and a grant allows for it in its ttl only.
    pub(super) fn counts_from(&self, ttl: Duration, sent: Moment) -> Moment {
        let longer = self.span.saturating_sub(ttl);
        sent.min(self.lives_until().minus(ttl + longer / 99))
    }
}

#[derive(Default)]
pub(super) struct Leases {
    free: Mutex<Vec<Lease>>,
    /// None is kept any more.
    pub(super) is_closing: AtomicBool,
}

impl Leases {
    /// One that has the ttl before it, at the latest once a majority has answered what is sent next.
    pub(super) fn take(
        &self,
        wire: &mut Wire,
        ttl: Duration,
        deadline: Deadline,
    ) -> Result<Lease, Failure> {
        let seconds = whole_seconds(ttl + ttl / 8);
        let found = {
            let (mut free, now) = (self.free.lock(), Moment::now());
            free.retain(|lease| !lease.has_ended(now.plus(LEAST)));
            // The one that was used last has the most before it.
            let at = free.iter().rposition(|lease| lease.seconds == seconds);
            at.map(|at| free.remove(at))
        };
        if let Some(mut lease) = found {
            let now = Moment::now();
            if lease.counts_from(ttl, now) == now {
                return Ok(lease);
            }
            let lives = keep_alive(wire, std::slice::from_mut(&mut lease), deadline)
                .map_err(Failure::not_done)?;
            if lives == [true] {
                return Ok(lease);
            }
        }
        Leases::make(wire, seconds, deadline)
    }

    /// A new one that ends after so long, if nobody renews it.
    pub(super) fn exactly(
        wire: &mut Wire,
        ttl: Duration,
        deadline: Deadline,
    ) -> Result<Lease, Failure> {
        Leases::make(wire, whole_seconds(ttl), deadline)
    }

    fn make(wire: &mut Wire, seconds: i64, deadline: Deadline) -> Result<Lease, Failure> {
        let asked =
            call(wire, messages::GRANT, &messages::grant(0, seconds), Lives::read, deadline);
        // Whatever became of it, nothing was taken.
        let (lives, since) = asked.map_err(|failure| Failure::not_done(failure.error))?;
        let span = Duration::from_secs(lives.seconds.cast_unsigned());
        Ok(Lease { id: lives.id, seconds, span, since, renewed: None })
    }

    /// Nothing is under it, nor will be.
    pub(super) fn put_back(&self, lease: Lease) {
        self.free.lock().push(lease);
    }

    /// How many more there are than are kept.
    pub(super) fn spare(&self) -> usize {
        let kept = if self.is_closing.load(Ordering::Relaxed) { 0 } else { MOST };
        self.free.lock().len().saturating_sub(kept)
    }

    /// Some of those, which nobody uses from now on: those that were used last have the most before them.
    pub(super) fn take_spare(&self) -> Vec<i64> {
        let (count, mut free) = (self.spare().min(MOST_OPS), self.free.lock());
        let count = count.min(free.len());
        free.drain(..count).map(|lease| lease.id).collect()
    }
}

/// Begins the lives of leases anew, on one stream; tells which of them live. That counts once they are
/// [confirmed](Lease::confirm).
pub(super) fn keep_alive(
    wire: &mut Wire,
    leases: &mut [Lease],
    deadline: Deadline,
) -> Result<Vec<bool>, Error> {
    let stream = wire.begin(messages::KEEP_ALIVE);
    let sent = Moment::now();
    for (at, lease) in (1..).zip(leases.iter()) {
        wire.write(stream, &messages::of_lease(lease.id), at == leases.len());
    }
    let sending = wire.send(deadline).map_err(|(_, error)| error);
    let all = sending.and_then(|()| {
        let lives = |lease: &mut Lease| {
            let answer = wire.receive(stream, deadline)?;
            let answer = answer.map_err(|end| super::fault::ended(&end, sent).error)?;
            let lives = Lives::read(&answer).filter(|lives| lives.id == lease.id);
            let lives = lives.ok_or_else(super::fault::foreign)?;
            if lives.seconds > 0 {
                lease.renewed(sent, lives.term);
            }
            Ok(lives.seconds > 0)
        };
        leases.iter_mut().map(lives).collect()
    });
    wire.leave(stream);
    all
}

/// Rounded up.
pub(super) fn whole_seconds(span: Duration) -> i64 {
    let seconds = span.as_secs() + u64::from(span.subsec_nanos() > 0);
    i64::try_from(seconds.max(1)).unwrap_or(i64::MAX)
}

impl EtcdStore {
    /// Ends leases, with what is under them.
    pub(super) fn revoke(&self, leases: &[i64], deadline: Deadline) -> Result<(), Failure> {
        if leases.is_empty() {
            return Ok(());
        }
        self.on_wire(Lane::Keeper, deadline, |wire, deadline| {
            ask_each(wire, messages::REVOKE, leases, deadline).map(drop)
        })
    }
}

/// How these leases stand. What has none never ends.
pub(super) fn lives_of(
    wire: &mut Wire,
    leases: &[i64],
    deadline: Deadline,
) -> Result<Vec<Lives>, Failure> {
    let sent = Moment::now();
    let answers = ask_each(wire, messages::TIME_TO_LIVE, leases, deadline)?;
    let lives = |(lease, answer): (&i64, Result<Vec<u8>, End>)| {
        if *lease == 0 {
            return Ok(Lives { seconds: ENDLESS, whole: ENDLESS, ..Lives::default() });
        }
        let answer = answer.map_err(|end| fault::ended(&end, sent))?;
        Lives::read(&answer).ok_or_else(|| Failure::unknown(fault::foreign(), sent))
    };
    leases.iter().zip(answers).map(lives).collect()
}

/// Asks the same of each lease, of as many at a time as the server takes; tells what it answered.
fn ask_each(
    wire: &mut Wire,
    path: &str,
    leases: &[i64],
    deadline: Deadline,
) -> Result<Vec<Result<Vec<u8>, End>>, Failure> {
    let (mut all, sent) = (Vec::new(), Moment::now());
    for some in leases.chunks(wire.most_streams) {
        let mut streams = Vec::new();
        for lease in some {
            let stream = wire.begin(path);
            wire.write(stream, &messages::of_lease(*lease), true);
            streams.push(stream);
        }
        // It may all be asked again.
        wire.send(deadline).map_err(|(_, error)| Failure::not_done(error))?;
        for stream in streams {
            let answer = wire.receive(stream, deadline);
            all.push(answer.map_err(|error| Failure::unknown(error, sent))?);
            wire.leave(stream);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::drift;

    const fn at(millis: u64) -> Moment {
        Moment::from_nanos(1_000_000_000_000 + millis * 1_000_000)
    }

    #[test]
    fn c3_a_lease_that_was_used_before_promises_no_more_than_it_has() {
        let span = Duration::from_secs(12);
        let mut lease = Lease { id: 1, seconds: 12, span, since: at(0), renewed: None };
        let ttl = Duration::from_secs(10);
        let aged = at(2000).minus(Duration::from_secs(2) / 99);
        assert_eq!(lease.counts_from(ttl, at(1500)), at(1500));
        assert_eq!(lease.counts_from(ttl, at(3500)), aged);
        // The word of one server is not enough.
        lease.renewed(at(3000), 7);
        assert_eq!(lease.counts_from(ttl, at(3500)), aged);
        assert!(!lease.confirm(8));
        assert_eq!(lease.counts_from(ttl, at(3500)), aged);
        assert!(lease.confirm(7));
        assert_eq!(lease.counts_from(ttl, at(3500)), at(3500));
    }

    #[test]
    fn c3_no_grant_outlasts_its_lease_by_a_clock_that_is_a_hundredth_too_fast() {
        for (ttl, span) in [(1, 15), (10, 12), (30, 34), (300, 338), (30, 30)] {
            let (ttl, span) = (Duration::from_secs(ttl), Duration::from_secs(span));
            let lease = Lease { id: 1, seconds: 1, span, since: at(0), renewed: None };
            let valid_until = lease.counts_from(ttl, at(1_000_000)).plus(ttl).minus(drift(ttl));
            assert!(valid_until < at(0).plus(span * 100 / 101), "{ttl:?} of {span:?}");
        }
    }

    #[test]
    fn seconds_are_rounded_up() {
        for (millis, seconds) in [(0, 1), (3, 1), (1000, 1), (1001, 2), (30_000, 30)] {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), seconds);
        }
    }
}
