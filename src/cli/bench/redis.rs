//! A Redis store measured against a bare socket.

use std::cell::RefCell;
use std::time::Duration;

use leasehold::{Client, Lock};

use super::also::{Program, interleave_with};
use super::bare::{Address, Bare, pack};
use super::count::{Counted, commands_per_cycle, executed};
use super::limit::Limit;
use super::measure::Timed;
use super::ours;
use super::pin::{Cores, Server, field};
use super::record::Recorded;
use super::report::{Figures, Report};
use super::watch::Watch;
use crate::exit::Failure;

/// How often commands are counted, and over how many cycles.
const COUNTS: (u32, u32) = (5, 100);

pub(super) struct Bench<'a> {
    pub(super) client: &'a Client,
    pub(super) name: &'a str,
    pub(super) programs: RefCell<Vec<Program>>,
    pub(super) cores: Cores,
    pub(super) time: Duration,
    pub(super) watch: &'a Watch,
}

impl Bench<'_> {
    pub(super) fn measure(&self, url: &str) -> Result<Report, Failure> {
        let lock = self.client.lock(self.name);
        let Some(address) = Address::of(url) else {
            self.watch.note(
                "the bare limit is that of one server without TLS: only our own cycle is measured",
            );
            let figures = self.without_limit(&lock, self.time)?;
            return Ok(Report::new(self.client.store(), None, None, Some(figures)));
        };
        let mut bare = Bare::connect(&address)?;
        let info = bare.info("server").unwrap_or_default();
        let version = field(&info, "valkey_version").or_else(|| field(&info, "redis_version"));
        let server = Server::behind(&address, &mut bare);
        let recorded = match Recorded::of(&lock, &address, &mut bare) {
            Ok(recorded) => Some(recorded),
            Err(failure) => {
                self.watch.note(&format!(
                    "there is no bare limit, and the fence of {} stays: {failure}",
                    self.name
                ));
                None
            }
        };
        let limit =
            recorded.as_ref().map(|recorded| Limit::new(recorded, Bare::connect(&address)?));
        let measured = limit.transpose().and_then(|limit| {
            let limit = limit.map(RefCell::new);
            everywhere(self.cores, server.as_slice(), self.time, self.watch, |time| match &limit {
                Some(limit) => self.with_limit(&lock, limit, time),
                None => self.without_limit(&lock, time),
            })
        });
        if let Some(recorded) = &recorded {
            forget(&mut bare, recorded.keys());
        }
        let (same, cross) = measured?;
        Ok(Report::new(self.client.store(), version, same, cross))
    }

    fn without_limit(&self, lock: &Lock, time: Duration) -> Result<Figures, Failure> {
        let programs = &mut self.programs.borrow_mut();
        let mut cycle = || ours::cycle(lock);
        let ([cycle], also) = interleave_with(programs, [&mut cycle], time, self.watch)?;
        Ok(Figures { cycle, also, ..Figures::default() })
    }

    fn with_limit(
        &self,
        lock: &Lock,
        limit: &RefCell<Limit>,
        time: Duration,
    ) -> Result<Figures, Failure> {
        let ping = pack(&["PING"]);
        let mut ping = || {
            limit.borrow_mut().bare().exchange(&ping)?;
            Ok(())
        };
        let mut bare = || limit.borrow_mut().cycle();
        let mut cycle = || ours::cycle(lock);
        let mut deferred = || ours::deferred_cycle(lock);
        let programs = &mut self.programs.borrow_mut();
        let own: [&mut dyn Timed; 4] = [&mut ping, &mut bare, &mut cycle, &mut deferred];
        let (medians, also) = interleave_with(programs, own, time, self.watch)?;
        let mut counted = Vec::new();
        for _ in 0..COUNTS.0 {
            self.watch.check()?;
            let bare = grown(limit, &mut bare)?;
            let ours = grown(limit, &mut cycle)?;
            counted.push(Counted { cycles: COUNTS.1, ours, bare });
        }
        Ok(Figures {
            rtt: Some(medians[0]),
            limit: Some(medians[1]),
            cycle: medians[2],
            deferred: Some(medians[3]),
            commands: commands_per_cycle(&counted),
            also,
        })
    }
}

/// The figures on one core and across two, as far as the servers can be placed.
pub(super) fn everywhere<F>(
    cores: Cores,
    servers: &[Server],
    time: Duration,
    watch: &Watch,
    here: impl Fn(Duration) -> Result<F, Failure>,
) -> Result<(Option<F>, Option<F>), Failure> {
    if servers.is_empty() {
        watch.note(
            "the server is not a process here that may be moved: one measurement, called cross",
        );
        watch.say("wherever the server is");
        return Ok((None, Some(here(time)?)));
    }
    watch.say("on one core");
    servers.iter().try_for_each(|server| server.pin(cores.own))?;
    let same = here(time / 2)?;
    let Some(other) = cores.other else {
        watch.note("there is one core only: nothing is measured across cores");
        return Ok((Some(same), None));
    };
    watch.say("one core each");
    servers.iter().try_for_each(|server| server.pin(other))?;
    Ok((Some(same), Some(here(time / 2)?)))
}

/// Removes keys; what a server does not let us remove, it forgets by itself in 25 hours.
pub(super) fn forget<K: AsRef<[u8]>>(bare: &mut Bare, keys: Vec<K>) {
    let mut command: Vec<&[u8]> = vec![b"DEL"];
    command.extend(keys.iter().map(AsRef::as_ref));
    let _ = bare.exchange(&pack(&command));
}

/// By how much the server's counter grows while a loop runs.
fn grown(
    limit: &RefCell<Limit>,
    cycle: &mut dyn FnMut() -> Result<(), Failure>,
) -> Result<u64, Failure> {
    let before = executed(limit.borrow_mut().bare())?;
    for _ in 0..COUNTS.1 {
        cycle()?;
    }
    Ok(executed(limit.borrow_mut().bare())?.saturating_sub(before))
}
