//! The Sentinels: who is asked first, and what to make of their answers.

use std::time::Duration;

use super::inquiry::{Found, Inquiry};
use crate::clock::{Deadline, Moment};
use crate::config::{Address, SentinelConfig};
use crate::error::{Error, ErrorKind};
use crate::store::redis::dial::Show;

pub(super) struct Circle {
    /// Whoever answered last comes first.
    hosts: Vec<Address>,
    inquiry: Inquiry,
    pub(super) older: Option<Older>,
}

/// What most of the Sentinels tell although we were told of a newer configuration.
pub(super) struct Older {
    address: Address,
    epoch: Option<u64>,
    /// When they first did.
    pub(super) since: Moment,
}

/// A failover has reached every Sentinel within seconds. Those that still tell of the configuration
/// before were set up anew.
pub(super) const SETTLED: Duration = Duration::from_secs(10);

/// What was heard on one way round that was not enough by itself.
#[derive(Default)]
pub(super) struct Heard {
    /// Those that have not heard of the newest configuration.
    outdated: Vec<Found>,
    /// How many know no master of that name.
    strangers: usize,
    troubles: Vec<Error>,
}

impl Circle {
    pub(super) fn new(config: &SentinelConfig) -> Result<Circle, Error> {
        let inquiry = Inquiry::new(config)?;
        for host in &config.hosts {
            inquiry.check(host)?;
        }
        Ok(Circle { hosts: config.hosts.clone(), inquiry, older: None })
    }

    /// Asks one after the other until somebody knows the master, in a configuration that is no
    /// older than this one. Each has a share of the time, and so has what comes afterwards. `known`:
    /// there is a master that can be reached, so that nothing older is so because most tell it for long.
    pub(super) fn ask(
        &mut self,
        epoch: u64,
        known: bool,
        deadline: Deadline,
        show: &Show<'_>,
    ) -> Result<Found, Error> {
        let mut heard = Heard::default();
        let count = self.hosts.len();
        for index in 0..count {
            let share = deadline.left() / u32::try_from(count - index + 1).unwrap_or(u32::MAX);
            let host = &self.hosts[index];
            match self.inquiry.make(host, Deadline::after(share).min(deadline), show) {
                Ok(Some(found)) if found.epoch.is_none_or(|told| told >= epoch) => {
                    self.hosts[..=index].rotate_right(1);
                    self.older = None;
                    return Ok(found);
                }
                Ok(Some(found)) => heard.outdated.push(found),
                Ok(None) => heard.strangers += 1,
                Err(error) if error.kind() == ErrorKind::Exhausted => return Err(error),
                Err(error) => {
                    heard.troubles.push(about(host, &error));
                }
            }
        }
        match heard.most_told(count) {
            Some(index) if !known && self.is_settled(&heard.outdated[index], Moment::now()) => {
                Ok(heard.outdated.swap_remove(index))
            }
            _ => heard.verdict(count, self.inquiry.name()),
        }
    }

    /// Whether most of them have told this for so long that it is no failover that they have missed.
    fn is_settled(&mut self, found: &Found, now: Moment) -> bool {
        let Found { address, epoch, .. } = found;
        let same = self.older.take_if(|older| older.address == *address && older.epoch == *epoch);
        let since = same.map_or(now, |older| older.since);
        self.older = Some(Older { address: address.clone(), epoch: *epoch, since });
        now.since(since) >= SETTLED
    }
}

/// Says which one, if that is not said yet.
fn about(host: &Address, error: &Error) -> Error {
    let (host, detail) = (host.to_string(), error.detail());
    match detail.contains(&host) {
        true => error.clone(),
        false => Error::new(error.kind(), format!("{host}: {detail}")),
    }
}

impl Heard {
    /// One that tells what most of all Sentinels tell, if they agree on something older.
    fn most_told(&self, count: usize) -> Option<usize> {
        let same = |one: &Found| {
            let agrees =
                |other: &&Found| (&one.address, one.epoch) == (&other.address, other.epoch);
            self.outdated.iter().filter(agrees).count()
        };
        self.outdated.iter().position(|one| same(one) > count / 2)
    }

    fn verdict(mut self, count: usize, name: &str) -> Result<Found, Error> {
        // Somebody has set the Sentinels up anew: they do not all err together. One that does not
        // answer may be the one that knows better, for a while.
        if self.outdated.len() == count {
            self.outdated.sort_by_key(|found| found.epoch);
            if let Some(newest) = self.outdated.pop() {
                return Ok(newest);
            }
        }
        if !self.outdated.is_empty() {
            let what = format!("the Sentinels that answer have missed a failover of '{name}'");
            return Err(Error::new(ErrorKind::Unavailable, what));
        }
        if self.strangers > 0 {
            let what =
                format!("no Sentinel knows a master '{name}'; {} of {count}", self.strangers);
            return Err(Error::new(ErrorKind::BadArgument, format!("{what} were reached")));
        }
        let named = |kind: ErrorKind| move |error: &&Error| error.kind() == kind;
        let troubles = &self.troubles;
        let worst = troubles.iter().find(|error| !error.is_retriable());
        let worst = worst.or_else(|| troubles.iter().find(named(ErrorKind::NoAnswer)));
        let Some(worst) = worst.or_else(|| troubles.last()) else {
            return Err(Error::new(ErrorKind::BadArgument, "there are no Sentinels to ask"));
        };
        let what = match count {
            1 => "the Sentinel tells no master".to_owned(),
            count => format!("none of the {count} Sentinels tells the master"),
        };
        Err(Error::new(worst.kind(), format!("{what}; {}", worst.detail())))
    }
}
