//! A Redis store measured against a bare socket.

use std::time::Duration;

use leasehold::{Client, Lock};

use super::bare::{Address, Bare, pack};
use super::count::{Counted, commands_per_cycle, executed};
use super::fault::Fault;
use super::limit::Limit;
use super::measure::interleave;
use super::ours;
use super::pin::{Cores, Server, field};
use super::record::Recorded;
use super::report::{Figures, Report};
use super::watch::Watch;

/// How often commands are counted, and over how many cycles.
const COUNTS: (u32, u32) = (5, 100);

pub(super) fn measure(
    url: &str,
    client: &Client,
    name: &str,
    time: Duration,
    watch: &Watch,
) -> Result<Report, Fault> {
    let lock = client.lock(name);
    let Some(address) = Address::of(url) else {
        watch.note("a bare socket speaks no TLS: only our own cycle is measured");
        let figures = without_limit(&lock, time, watch)?;
        return Ok(Report::new(client.store(), None, None, Some(figures)));
    };
    let mut bare = Bare::connect(&address)?;
    let info = bare.info("server").unwrap_or_default();
    let version = field(&info, "valkey_version").or_else(|| field(&info, "redis_version"));
    let server = Server::behind(&address, &mut bare);
    let recorded = match Recorded::of(&lock, &address, &mut bare) {
        Ok(recorded) => Some(recorded),
        Err(fault) => {
            watch.note(&format!("no bare limit, and the fence of {name} stays: {fault}"));
            None
        }
    };
    let measured = (|| {
        let mut bench = Bench { lock: &lock, limit: None, watch };
        if let Some(recorded) = &recorded {
            bench.limit = Some(Limit::new(recorded, Bare::connect(&address)?)?);
        }
        bench.everywhere(server.as_ref(), time)
    })();
    if let Some(recorded) = &recorded {
        forget(&mut bare, recorded.keys());
    }
    let (same, cross) = measured?;
    Ok(Report::new(client.store(), version, same, cross))
}

/// Removes keys; what a server does not let us remove, it forgets by itself in 25 hours.
pub(super) fn forget<K: AsRef<[u8]>>(bare: &mut Bare, keys: Vec<K>) {
    let mut command: Vec<&[u8]> = vec![b"DEL"];
    command.extend(keys.iter().map(AsRef::as_ref));
    let _ = bare.exchange(&pack(&command));
}

fn without_limit(lock: &Lock, time: Duration, watch: &Watch) -> Result<Figures, Fault> {
    let mut cycle = || ours::cycle(lock);
    let medians = interleave(&mut [&mut cycle], time, watch)?;
    Ok(Figures { cycle: medians[0], ..Figures::default() })
}

struct Bench<'a> {
    lock: &'a Lock,
    limit: Option<Limit>,
    watch: &'a Watch,
}

impl Bench<'_> {
    /// The figures on one core and across two, as far as the server can be placed.
    fn everywhere(
        &mut self,
        server: Option<&Server>,
        time: Duration,
    ) -> Result<(Option<Figures>, Option<Figures>), Fault> {
        let cores = Cores::choose()?;
        let Some(server) = server else {
            self.watch.note(
                "the server is not a process here that may be moved: one measurement, called cross",
            );
            self.watch.say("wherever the server is");
            return Ok((None, Some(self.here(time)?)));
        };
        self.watch.say("on one core");
        server.pin(cores.own)?;
        let same = self.here(time / 2)?;
        let Some(other) = cores.other else {
            self.watch.note("there is one core only: nothing is measured across cores");
            return Ok((Some(same), None));
        };
        self.watch.say("one core each");
        server.pin(other)?;
        let cross = self.here(time / 2)?;
        Ok((Some(same), Some(cross)))
    }

    fn here(&mut self, time: Duration) -> Result<Figures, Fault> {
        let Some(limit) = &mut self.limit else {
            return without_limit(self.lock, time, self.watch);
        };
        // Three loops share one bare connection; they take turns.
        let limit = std::cell::RefCell::new(limit);
        let ping = pack(&["PING"]);
        let mut ping = || {
            limit.borrow_mut().bare().exchange(&ping)?;
            Ok(())
        };
        let mut bare = || limit.borrow_mut().cycle();
        let mut cycle = || ours::cycle(self.lock);
        let medians = interleave(&mut [&mut ping, &mut bare, &mut cycle], time, self.watch)?;
        let mut counted = Vec::new();
        for _ in 0..COUNTS.0 {
            self.watch.check()?;
            let bare = grown(&limit, &mut bare)?;
            let ours = grown(&limit, &mut cycle)?;
            counted.push(Counted { cycles: COUNTS.1, ours, bare });
        }
        Ok(Figures {
            rtt: Some(medians[0]),
            limit: Some(medians[1]),
            cycle: medians[2],
            commands: commands_per_cycle(&counted),
        })
    }
}

/// By how much the server's counter grows while a loop runs.
fn grown(
    limit: &std::cell::RefCell<&mut Limit>,
    cycle: &mut dyn FnMut() -> Result<(), Fault>,
) -> Result<u64, Fault> {
    let before = executed(limit.borrow_mut().bare())?;
    for _ in 0..COUNTS.1 {
        cycle()?;
    }
    Ok(executed(limit.borrow_mut().bare())?.saturating_sub(before))
}
