//! Locks on more than one server: what they cost, and what a failure costs.
//!
//! The servers are started for the purpose, all on this machine. So the figures say what a client
//! and its servers have to do, and nothing of the network between them.

mod failover;
mod gather;
mod quorum;
mod servers;
mod table;

use std::cell::RefCell;
use std::time::Duration;

use leasehold::Client;

use self::servers::Group;
use self::table::{Measured, Report};
use super::measure::random_bits;
use super::pin::Cores;
use super::redis;
use super::watch::Watch;
use crate::exit::Failure;

#[derive(clap::Args, Debug)]
pub(super) struct Wanted {
    /// Instead of one server, start these groups of them, and measure locks there.
    ///
    /// With Sentinels and on a Cluster, the same as for one server, and for Sentinels how long
    /// after the first word of a new master somebody has the lock who waits while the old one is
    /// killed. On a quorum, an acquire and a cycle against writing the same bytes to as many bare
    /// sockets and then reading all replies; how many scripts a node runs for an acquire; and with
    /// one node stopped, what the first acquire and those after it cost. --seconds is for each.
    #[arg(long, value_name = "GROUP", value_delimiter = ',', requires = "spawn_redis",
        value_enum, num_args = 0.., default_missing_values = ALL,
        conflicts_with_all = ["leases", "also", "contended"])]
    groups: Vec<Row>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
enum Row {
    Sentinel,
    Cluster,
    Quorum3,
    Quorum5,
    Quorum5OneDead,
}

const ALL: [&str; 5] = ["sentinel", "cluster", "quorum3", "quorum5", "quorum5_one_dead"];

impl Row {
    fn name(self) -> &'static str {
        ALL[self as usize]
    }
}

impl Wanted {
    pub(super) fn are_wanted(&self) -> bool {
        !self.groups.is_empty()
    }
}

pub(super) fn measure(wanted: &Wanted, time: Duration) -> Result<Report, Failure> {
    let cores = Cores::choose()?;
    let watch = Watch::start(time * wanted.groups.len() as u32)?;
    let name = format!("leasehold-bench:{:016x}", random_bits()?);
    let bench = Bench { cores, watch: &watch, name: &name, time };
    let rows = wanted.groups.iter().map(|row| Ok((row.name(), bench.row(*row)?)));
    Ok(Report { rows: rows.collect::<Result<_, Failure>>()? })
}

struct Bench<'a> {
    cores: Cores,
    watch: &'a Watch,
    name: &'a str,
    time: Duration,
}

impl Bench<'_> {
    fn row(&self, row: Row) -> Result<Measured, Failure> {
        self.watch.say("starting servers");
        self.watch.check()?;
        // Servers run where they like until they are placed.
        self.cores.let_self_go()?;
        Ok(match row {
            Row::Sentinel => {
                let group = Group::sentinel(self.watch)?;
                let url = group.servers.first().map(super::server::Spawned::url);
                let cycle = self.cycle(&group, &url.unwrap_or_default())?;
                drop(group);
                self.cores.let_self_go()?;
                Measured::Sentinel(cycle, failover::measure(self.name, self.watch)?)
            }
            Row::Cluster => {
                let group = Group::cluster(self.watch)?;
                let url = group.owner(self.name)?.url();
                Measured::Cycle(self.cycle(&group, &url)?)
            }
            Row::Quorum3 => self.quorum(3, false)?,
            Row::Quorum5 => self.quorum(5, false)?,
            Row::Quorum5OneDead => self.quorum(5, true)?,
        })
    }

    /// What is measured of one server, of the one of a group that keeps the lock.
    fn cycle(&self, group: &Group, url: &str) -> Result<super::report::Report, Failure> {
        self.cores.pin_self()?;
        let client = Client::open(&group.url)?;
        client.ping()?;
        let programs = RefCell::new(Vec::new());
        let Bench { cores, time, name, watch } = *self;
        let bench = redis::Bench { client: &client, name, programs, cores, time, watch };
        bench.measure(url)
    }

    fn quorum(&self, nodes: usize, one_dead: bool) -> Result<Measured, Failure> {
        let group = Group::quorum(nodes)?;
        self.cores.pin_self()?;
        let Bench { cores, time, name, watch } = *self;
        let bench = quorum::Bench { group: &group, name, cores, time, watch };
        let (same, cross) =
            if one_dead { bench.with_one_dead()? } else { bench.against_the_limit()? };
        Ok(Measured::Quorum { same, cross })
    }
}
