//! A quorum measured against one scatter and gather over as many bare sockets.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use leasehold::{Client, Lock};
use nix::sys::signal::Signal;

use super::super::bare::Bare;
use super::super::measure::{Part, interleave, median, nanos, random_bits};
use super::super::ours;
use super::super::pin::{Cores, Server};
use super::super::redis::everywhere;
use super::super::watch::Watch;
use super::gather::Gather;
use super::servers::{Group, address, connect};
use crate::exit::Failure;

/// Over how many acquires commands are counted.
const COUNTED: usize = 300;
/// How often a server is stopped, each time another one.
const ROUNDS: usize = 10;
/// Before anything is timed: connections are made, and paces learnt.
const WARM_UP: usize = 50;

/// Medians in microseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    pub(super) limit_acquire: Option<f64>,
    pub(super) acquire: f64,
    pub(super) limit_cycle: Option<f64>,
    pub(super) cycle: Option<f64>,
    /// By one node, of the nodes the one with most.
    pub(super) commands_per_acquire: Option<f64>,
    pub(super) one_dead: Option<OneDead>,
}

#[derive(Clone, Debug)]
pub(super) struct OneDead {
    pub(super) acquire: f64,
    /// By how much the first one took longer than with all alive; the median and the worst.
    pub(super) first_extra: f64,
    pub(super) first_extra_worst: f64,
}

pub(super) type Places = (Option<Figures>, Option<Figures>);

pub(super) struct Bench<'a> {
    pub(super) group: &'a Group,
    pub(super) name: &'a str,
    pub(super) cores: Cores,
    pub(super) time: Duration,
    pub(super) watch: &'a Watch,
}

impl Bench<'_> {
    /// With all nodes alive, against the limit.
    pub(super) fn against_the_limit(&self) -> Result<Places, Failure> {
        let client = Client::open(&self.group.url)?;
        let lock = client.lock(self.name);
        // A name of its own: what we did not wait for may still be under way on the slowest node.
        let bare = client.lock(format!("{}:bare", self.name));
        let limit = RefCell::new(Gather::new(&bare, self.group)?);
        self.everywhere(|time| {
            let bare_part = |choose: fn((Duration, Duration)) -> Duration| {
                let limit = &limit;
                Part(move || limit.borrow_mut().cycle().map(choose))
            };
            let own_part = |choose: fn((Duration, Duration)) -> Duration| {
                let lock = &lock;
                Part(move || cycle(lock).map(choose))
            };
            let [first, whole]: [fn((Duration, Duration)) -> Duration; 2] =
                [|(acquire, _)| acquire, |(acquire, release)| acquire + release];
            let (mut bare_acquire, mut bare_cycle) = (bare_part(first), bare_part(whole));
            let (mut acquire, mut cycle) = (own_part(first), own_part(whole));
            let loops: &mut [&mut dyn super::super::measure::Timed] =
                &mut [&mut bare_acquire, &mut acquire, &mut bare_cycle, &mut cycle];
            let medians = interleave(loops, time, self.watch)?;
            Ok(Figures {
                limit_acquire: Some(medians[0]),
                acquire: medians[1],
                limit_cycle: Some(medians[2]),
                cycle: Some(medians[3]),
                commands_per_acquire: Some(self.commands(&client)?),
                one_dead: None,
            })
        })
    }

    /// With one node stopped, and with all of them alive before that, in turn.
    pub(super) fn with_one_dead(&self) -> Result<Places, Failure> {
        self.everywhere(|time| {
            let (mut alive, mut dead, mut firsts) = (Vec::new(), Vec::new(), Vec::new());
            let span = time / (2 * ROUNDS as u32);
            for round in 0..ROUNDS {
                // One that has not met a dead node yet.
                let client = Client::open(&self.group.url)?;
                // What the node is told while it is stopped, it does when it goes on; and what it is
                // to give up then, it hears late or never from a client that ends.
                let lock = client.lock(format!("{}:{:016x}", self.name, random_bits()?));
                (0..WARM_UP).try_for_each(|_| cycle(&lock).map(drop))?;
                self.acquires(&lock, span, &mut alive)?;
                let stopped = &self.group.servers[round % self.group.servers.len()];
                stopped.signal(Signal::SIGSTOP)?;
                let first = cycle(&lock);
                let after = self.acquires(&lock, span, &mut dead);
                stopped.signal(Signal::SIGCONT)?;
                after?;
                firsts.push(nanos(first?.0));
                // What it was told meanwhile, it does now, before it is measured again.
                connect(stopped)?.call(&[b"PING"])?;
            }
            let micros = |nanos: u32| f64::from(nanos) / 1000.0;
            let acquire = micros(median(&mut alive));
            let one_dead = OneDead {
                acquire: micros(median(&mut dead)),
                first_extra: micros(median(&mut firsts)) - acquire,
                first_extra_worst: micros(firsts.iter().copied().max().unwrap_or(0)) - acquire,
            };
            Ok(Figures { acquire, one_dead: Some(one_dead), ..Figures::default() })
        })
    }

    fn acquires(&self, lock: &Lock, span: Duration, samples: &mut Vec<u32>) -> Result<(), Failure> {
        let started = Instant::now();
        while started.elapsed() < span {
            self.watch.check()?;
            samples.push(nanos(cycle(lock)?.0));
        }
        Ok(())
    }

    fn everywhere(
        &self,
        here: impl Fn(Duration) -> Result<Figures, Failure>,
    ) -> Result<Places, Failure> {
        let mut servers = Vec::new();
        for server in &self.group.servers {
            servers.extend(Server::behind(&address(server)?, &mut connect(server)?));
        }
        if servers.len() < self.group.servers.len() {
            servers.clear();
        }
        everywhere(self.cores, &servers, self.time, self.watch, here)
    }

    /// How many scripts a node runs for an acquire: a second round would be one more.
    fn commands(&self, client: &Client) -> Result<f64, Failure> {
        let mut nodes: Vec<_> = self.group.servers.iter().map(connect).collect::<Result<_, _>>()?;
        let count =
            |nodes: &mut [Bare]| nodes.iter_mut().map(scripts).collect::<Result<Vec<_>, _>>();
        let before = count(&mut nodes)?;
        let names = (0..COUNTED).map(|number| format!("{}:{number}", self.name));
        let leases =
            names.map(|name| ours::take(&client.lock(name))).collect::<Result<Vec<_>, _>>()?;
        let after = count(&mut nodes)?;
        leases.into_iter().try_for_each(leasehold::Lease::release)?;
        let most =
            after.iter().zip(before).map(|(after, before)| after.saturating_sub(before)).max();
        Ok(most.unwrap_or(0) as f64 / COUNTED as f64)
    }
}

/// How long an acquire and its release took.
fn cycle(lock: &Lock) -> Result<(Duration, Duration), Failure> {
    let begun = Instant::now();
    let lease = ours::take(lock)?;
    let taken = begun.elapsed();
    lease.release()?;
    Ok((taken, begun.elapsed() - taken))
}

/// How many scripts were called, and loaded or sent whole, which is once each.
fn scripts(node: &mut Bare) -> Result<u64, Failure> {
    let info = node.info("commandstats")?;
    let calls = |line: &str| {
        let (command, stats) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        matches!(command, "evalsha" | "eval" | "script|load" | "script")
            .then(|| stats.split(',').next()?.parse::<u64>().ok())?
    };
    Ok(info.lines().filter_map(calls).sum())
}
