//! Locks on more than one server: what they cost, and what a failure costs.

use std::time::{Duration, Instant};

use clap::ValueEnum;
use kit::{Cluster, SentinelGroup, Server};
use leasehold::{Client, Lock};

use crate::also::Also;
use crate::beside::Beside;
use crate::cores::{Cores, Place};
use crate::cycle::{NAMES, against_limit, cycle};
use crate::limit::take;
use crate::measure::{Outcome, median_us, nanos};
use crate::table::Table;

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Group {
    Sentinel,
    Cluster,
    Quorum3,
    Quorum5,
    /// A quorum of five, one of them stopped
    OneDead,
    /// With Sentinels, from the election of another master to the waiter's lock
    Failover,
}

/// Others stand beside ours where they know the group.
pub(crate) fn measure(groups: &[Group], beside: &[Beside], time: Duration) -> Outcome<Vec<Table>> {
    let groups = if groups.is_empty() { Group::value_variants() } else { groups };
    let built: Outcome<Vec<_>> = beside.iter().map(|one| Ok((*one, one.program()?))).collect();
    let built = built?;
    let that = |knows: fn(Beside) -> bool| -> Vec<Also> {
        built.iter().filter(|one| knows(one.0)).map(|one| one.1.clone()).collect()
    };
    let [one_store, quorum] = [Beside::knows_groups, Beside::knows_quorums].map(that);
    groups.iter().map(|group| group.measure(&one_store, &quorum, time)).collect()
}

impl Group {
    fn measure(self, also: &[Also], quorum: &[Also], time: Duration) -> Outcome<Table> {
        match self {
            Group::Sentinel => {
                let group = SentinelGroup::start();
                against_limit("sentinel", &group.url(), &[group.master()], NAMES, also, time)
            }
            Group::Cluster => {
                let cluster = Cluster::start();
                let node = cluster.node_of_key(NAMES[0]);
                let is_there = |name: &String| cluster.node_of_key(name) == node;
                let bare = (0..).map(|number| format!("{}:{number}", NAMES[1])).find(is_there);
                let names = [NAMES[0], bare.as_deref().unwrap_or_default()];
                against_limit("cluster", &cluster.url(), &[cluster.server(node)], names, also, time)
            }
            Group::Quorum3 => Quorum::start(3)?.against_limit("quorum of three", quorum, time),
            Group::Quorum5 => Quorum::start(5)?.against_limit("quorum of five", quorum, time),
            Group::OneDead => Quorum::start(5)?.with_one_dead(time),
            Group::Failover => failover(),
        }
    }
}

struct Quorum {
    servers: Vec<Server>,
    url: String,
}

impl Quorum {
    /// Servers that know nothing of each other, declared as new.
    fn start(count: usize) -> Outcome<Quorum> {
        let servers: Vec<_> = (0..count).map(|_| Server::start()).collect();
        let url = servers.iter().map(Server::url).collect::<Vec<_>>().join(",");
        Client::open(&url)?.initialize(false)?;
        Ok(Quorum { servers, url })
    }

    fn servers(&self) -> Vec<&Server> {
        self.servers.iter().collect()
    }

    fn against_limit(&self, title: &str, also: &[Also], time: Duration) -> Outcome<Table> {
        against_limit(title, &self.url, &self.servers(), NAMES, also, time)
    }

    fn with_one_dead(&self, time: Duration) -> Outcome<Table> {
        let cores = Cores::choose()?;
        cores.pin_self()?;
        let mut columns = Vec::new();
        for place in cores.places() {
            cores.pin(&self.servers(), *place)?;
            columns.push(self.stop_each(*place, time / cores.places().len() as u32)?);
        }
        cores.let_self_go()?;
        let mut table = Table::new("quorum of five, one dead", ["one core", "a core each"]);
        let row = |at: usize| columns.iter().map(move |figures| Some(figures[at]));
        table.row("our take with all alive, µs", row(0));
        table.row("our take with one dead, µs", row(1));
        table.row("  over all alive", columns.iter().map(|figures| Some(figures[1] / figures[0])));
        table.row("the first take then, more than all alive, µs", row(2));
        table.row("  at worst", row(3));
        Ok(table)
    }

    /// One server after the other is stopped.
    fn stop_each(&self, place: Place, time: Duration) -> Outcome<[f64; 4]> {
        const ROUNDS: usize = 10;
        /// Before anything is timed: connections are made, and paces learnt.
        const WARM_UP: usize = 50;
        let (mut alive, mut dead, mut firsts) = (Vec::new(), Vec::new(), Vec::new());
        let span = time / (2 * ROUNDS as u32);
        for round in 0..ROUNDS {
            // A client that has not met a dead server yet, and a name that no server has work for.
            let client = Client::open(&self.url)?;
            let lock = client.lock(format!("bench:{}:{round}", place as u8));
            (0..WARM_UP).try_for_each(|_| cycle(&lock).map(drop))?;
            takes(&lock, span, &mut alive)?;
            let stopped = &self.servers[round % self.servers.len()];
            stopped.stop();
            let first = cycle(&lock);
            let after = takes(&lock, span, &mut dead);
            stopped.cont();
            after?;
            firsts.push(nanos(first?.0));
            // What it was told meanwhile, it does now, before it is measured again.
            stopped.cmd(&["PING"]);
        }
        let (all, worst) = (median_us(&mut alive), firsts.iter().max().copied().unwrap_or(0));
        let first = median_us(&mut firsts);
        Ok([all, median_us(&mut dead), first - all, worst as f64 / 1000.0 - all])
    }
}

fn takes(lock: &Lock, span: Duration, samples: &mut Vec<u64>) -> Outcome<()> {
    let started = Instant::now();
    while started.elapsed() < span {
        samples.push(nanos(cycle(lock)?.0));
    }
    Ok(())
}

/// A master that fails while somebody waits: how long after most Sentinels have announced another
/// one it has the lock.
fn failover() -> Outcome<Table> {
    const TIMES: usize = 5;
    let times: Outcome<Vec<u64>> = (0..TIMES).map(|_| Ok(nanos(fail_once()?))).collect();
    let mut times = times?;
    let worst = times.iter().max().copied().unwrap_or(0);
    let mut table = Table::new("failover, five times", ["ms"]);
    table.row("from an election to a waiter's lock", [Some(median_us(&mut times) / 1e3)]);
    table.row("  at worst", [Some(worst as f64 / 1e6)]);
    Ok(table)
}

fn fail_once() -> Outcome<Duration> {
    /// How long a waiter takes to come to rest, and a write to reach the replica.
    const REST: Duration = Duration::from_millis(200);
    /// When the holder has left: later than the master dies, earlier than another one is elected.
    const LEAVES_IN: Duration = Duration::from_millis(500);
    const WAIT: Duration = Duration::from_secs(30);
    let mut group = SentinelGroup::start();
    let (holder, waiter) = (Client::open(&group.url())?, Client::open(&group.url())?);
    let held = take(&holder.lock("bench"))?;
    let lock = waiter.lock("bench").wait(WAIT);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| (lock.acquire(), Instant::now()));
        std::thread::sleep(REST);
        held.let_expire_in(LEAVES_IN)?;
        std::thread::sleep(REST);
        let mut elections = group.elections();
        group.master_mut().kill();
        let elected = elections.next(WAIT).at;
        let (lease, acquired) = waits.join().map_err(|_| "the waiter has panicked")?;
        lease?.release()?;
        Ok(acquired.saturating_duration_since(elected))
    })
}
