//! Which server of a Cluster has which slot, as far as is known.
//!
//! Any server of it tells the whole map (CLUSTER SLOTS, which every version knows). It is asked for
//! anew when a connection is lost or a slot has moved, by the next request, and not too often: a
//! failover takes seconds, and the servers are busy meanwhile.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::Value;

use super::super::dial::Dialer;
use super::super::dialect::keys::SLOTS;
use super::super::fault;
use super::super::server_source::{FixedServer, NO_SERVER, ServerSource};
use super::Gives;
use super::single::Single;
use crate::clock::{Deadline, Moment};
use crate::config::Address;
use crate::error::{Error, ErrorKind};
use crate::store::ServerId;
use crate::store::net::next_server;
use crate::store::net::pool::Pools;
use crate::store::outbox::Outbox;
use crate::sync::{Mutex, Turnstile};

/// Between two requests for the map, at least.
const PAUSE: Duration = Duration::from_millis(100);
/// The least that each server is given to tell it, however many there are.
const LEAST: Duration = Duration::from_millis(5);

/// One server of it.
pub(super) struct ClusterNode {
    pub(super) key: u32,
    pub(super) address: Address,
    server: ServerId,
    pub(super) source: Arc<dyn ServerSource>,
    pub(super) single: Single,
}

pub(in crate::store::redis) struct SlotMap {
    dialer: Arc<Dialer>,
    seeds: Vec<Address>,
    pools: Pools,
    /// Known before the first connection is made.
    gives: OnceLock<(Arc<dyn Gives>, Arc<Outbox>)>,
    /// Set when it may be out of date.
    doubt: Arc<AtomicBool>,
    known: Mutex<Known>,
    asking: Turnstile<Asking>,
}

#[derive(Default)]
struct Known {
    /// The key of each slot's server; 0 where none is known.
    owners: Vec<u32>,
    nodes: BTreeMap<u32, Arc<ClusterNode>>,
    last_key: u32,
}

#[derive(Default)]
struct Asking {
    /// Servers that told the map longest ago, or never, come first.
    order: VecDeque<Address>,
    asked: Moment,
}

impl Asking {
    /// A server has named these. It comes last now: a server that is cut off from the others keeps
    /// telling an old map, and only the others know the new one.
    fn told<'a>(&mut self, by: &Address, there: impl Iterator<Item = &'a Address> + Clone) {
        self.order.retain(|known| known != by && there.clone().any(|one| one == known));
        for address in there {
            if address != by && !self.order.contains(address) {
                self.order.push_back(address.clone());
            }
        }
        self.order.push_back(by.clone());
    }
}

/// Slots from one to another, and the addresses of their master and its replicas.
pub(in crate::store::redis) type Range = (u16, u16, Vec<Address>);

impl SlotMap {
    pub(in crate::store::redis) fn new(
        dialer: Arc<Dialer>,
        seeds: &[Address],
        pools: Pools,
    ) -> SlotMap {
        let asking = Asking { order: seeds.iter().cloned().collect(), asked: Moment::ZERO };
        let (asking, seeds) = (Turnstile::new(asking), seeds.to_vec());
        let (gives, doubt, known) = Default::default();
        SlotMap { dialer, seeds, pools, gives, doubt, known, asking }
    }

    /// To be told once.
    pub(super) fn tell(&self, gives: Arc<dyn Gives>, outbox: Arc<Outbox>) {
        let _ = self.gives.set((gives, outbox));
    }

    pub(super) fn owner(&self, slot: u16) -> Result<Arc<ClusterNode>, Error> {
        let known = self.known.lock();
        let key = known.owners.get(usize::from(slot)).copied().unwrap_or(0);
        known.nodes.get(&key).cloned().ok_or_else(|| {
            // The server that told the map may know of this one by now, or another one does.
            self.doubt();
            let what = format!("no server of the Cluster is known to have slot {slot}");
            Error::new(ErrorKind::Unavailable, what)
        })
    }

    pub(super) fn doubt(&self) {
        self.doubt.store(true, Ordering::Release);
    }

    pub(super) fn nodes(&self) -> Vec<Arc<ClusterNode>> {
        self.known.lock().nodes.values().cloned().collect()
    }

    /// Servers that have slots.
    pub(super) fn masters(&self) -> Vec<Arc<ClusterNode>> {
        let known = self.known.lock();
        let keys: BTreeSet<_> = known.owners.iter().collect();
        keys.into_iter().filter_map(|key| known.nodes.get(key)).cloned().collect()
    }

    pub(super) fn moved(&self, slot: u16, to: Address) -> Result<(), Error> {
        self.doubt();
        let node = self.at(to)?;
        let mut known = self.known.lock();
        if let Some(owner) = known.owners.get_mut(usize::from(slot)) {
            *owner = node.key;
        }
        Ok(())
    }

    /// The server at an address. While its pool is built, nobody waits for the map; of two threads
    /// that make it at the same time, one makes it in vain.
    pub(super) fn at(&self, address: Address) -> Result<Arc<ClusterNode>, Error> {
        let find = |known: &Known| {
            known.nodes.values().find(|node| node.address == address).map(Arc::clone)
        };
        let known = find(&self.known.lock());
        if let Some(node) = known {
            return Ok(node);
        }
        let (dialer, server) = (Arc::clone(&self.dialer), next_server());
        let doubt = Some(Arc::clone(&self.doubt));
        let source: Arc<dyn ServerSource> =
            Arc::new(FixedServer { dialer, address: address.clone(), server, doubt });
        let gives = self.gives.get().ok_or_else(|| Error::bare(ErrorKind::Closed))?;
        let single = Single::new(Arc::clone(&source), &self.pools, gives.clone(), None)?;
        let mut known = self.known.lock();
        if let Some(node) = find(&known) {
            return Ok(node);
        }
        known.last_key += 1;
        let node = Arc::new(ClusterNode { key: known.last_key, address, server, source, single });
        known.nodes.insert(node.key, Arc::clone(&node));
        Ok(node)
    }

    /// Gets the map if there is none yet, or if it is in doubt and no other thread is getting it.
    pub(super) fn freshen(&self, deadline: Deadline) -> Result<(), Error> {
        if !self.is_known() {
            return self.refresh(deadline);
        }
        if self.doubt.load(Ordering::Acquire)
            && let Some(mut asking) = self.asking.enter_now()
        {
            // The known map may still serve.
            let _ = self.ask_again(&mut asking, deadline);
        }
        Ok(())
    }

    /// Gets the map again, unless that was just done.
    pub(super) fn refresh(&self, deadline: Deadline) -> Result<(), Error> {
        let late = || Error::new(ErrorKind::NoAnswer, "looking for the servers of the Cluster");
        let mut asking = self.asking.enter(deadline).ok_or_else(late)?;
        self.ask_again(&mut asking, deadline)
    }

    fn ask_again(&self, asking: &mut Asking, deadline: Deadline) -> Result<(), Error> {
        match self.is_known() {
            true if Moment::now().since(asking.asked) < PAUSE => Ok(()),
            // Time must be left for the request that needs it.
            true => self.ask(asking, Deadline::after(deadline.left() / 2)),
            false => self.ask(asking, deadline),
        }
    }

    fn is_known(&self) -> bool {
        !self.known.lock().owners.is_empty()
    }

    fn ask(&self, asking: &mut Asking, deadline: Deadline) -> Result<(), Error> {
        // Doubts that arise from now on are about the new map.
        self.doubt.store(false, Ordering::Release);
        let asked_all: Vec<_> = asking.order.iter().map(Address::to_string).collect();
        let mut worst: Option<Error> = None;
        for left in (1..=asking.order.len()).rev() {
            let Some(address) = asking.order.front().cloned() else { break };
            // A server that answers nothing must leave time for the others.
            let until = deadline.share(left).max(Deadline::after(LEAST).min(deadline));
            let told = self.ask_one(&address, until).and_then(|ranges| self.learn(ranges));
            asking.asked = Moment::now();
            match told {
                Ok(announced) => {
                    asking.told(&address, announced.iter().chain(&self.seeds));
                    return Ok(());
                }
                Err(error) => {
                    asking.order.rotate_left(1);
                    // An error that does not pass by itself says most about the cause.
                    if worst.as_ref().is_none_or(|worst| worst.is_retriable()) {
                        worst = Some(error);
                    }
                }
            }
        }
        self.doubt();
        let worst = worst.unwrap_or_else(|| Error::bare(ErrorKind::Refused));
        if !worst.is_retriable() {
            return Err(worst);
        }
        let all = asked_all.join(", ");
        Err(worst.at(format_args!("no server of the Cluster tells which are its servers ({all})")))
    }

    fn ask_one(&self, address: &Address, deadline: Deadline) -> Result<Vec<Range>, Error> {
        let mut wire = self.dialer.dial(address, NO_SERVER, deadline, &|_| Ok(()))?;
        let ask = redis::cmd("CLUSTER").arg("SLOTS").get_packed_command();
        wire.send(&ask, deadline).map_err(|(_, error)| fault::io("CLUSTER SLOTS", &error))?;
        match wire.receive(deadline)? {
            Value::ServerError(error) => {
                let error = fault::server(&error);
                Err(match error.kind() {
                    ErrorKind::Protocol => Error::new(
                        ErrorKind::BadArgument,
                        format!(
                            "{address} is no server of a Cluster, and redis://{address} the URL for \
                             it ({})",
                            error.detail()
                        ),
                    ),
                    _ => error.at("CLUSTER SLOTS"),
                })
            }
            value => read(&value, address).ok_or_else(|| {
                Error::new(ErrorKind::Protocol, "CLUSTER SLOTS was answered by something else")
            }),
        }
    }

    /// Takes over what a server told, and returns the addresses in it. A server that has just
    /// joined need not have heard of every slot yet.
    fn learn(&self, ranges: Vec<Range>) -> Result<Vec<Address>, Error> {
        if ranges.is_empty() {
            let what = "the server belongs to no Cluster that has slots yet";
            return Err(Error::new(ErrorKind::Unavailable, what));
        }
        let master = |(.., addresses): &Range| addresses.first().cloned();
        let masters = ranges.iter().map(|range| master(range).map(|at| self.at(at)).transpose());
        let masters = masters.collect::<Result<Vec<_>, Error>>()?;
        let mut known = self.known.lock();
        let mut owners = known.owners.clone();
        owners.resize(usize::from(SLOTS), 0);
        for ((first, last, _), master) in ranges.iter().zip(&masters) {
            if let Some(slots) = owners.get_mut(usize::from(*first)..=usize::from(*last))
                && let Some(master) = master
            {
                slots.fill(master.key);
            }
        }
        let announced = ranges.into_iter().flat_map(|(.., addresses)| addresses).collect();
        // What these hold would count as a use below.
        drop(masters);
        known.owners = owners;
        // A server that has no slot any more stays while somebody uses it or a reply is unread.
        let Known { owners, nodes, .. } = &mut *known;
        nodes.retain(|key, node| {
            owners.contains(key)
                || Arc::strong_count(node) > 1
                || self.gives.get().is_some_and(|(_, outbox)| outbox.has_unread_from(node.server))
        });
        Ok(announced)
    }
}

/// What CLUSTER SLOTS says. The server that was asked leaves its address out if it does not know it.
pub(in crate::store::redis) fn read(value: &Value, asked: &Address) -> Option<Vec<Range>> {
    let Value::Array(entries) = value else { return None };
    let node = |node: &Value| {
        let Value::Array(node) = node else { return None };
        let [host, Value::Int(port), ..] = &node[..] else { return None };
        let host = match host {
            Value::BulkString(host) => std::str::from_utf8(host).ok()?,
            _ => "",
        };
        Some(address(host, u16::try_from(*port).ok()?, asked))
    };
    let range = |entry: &Value| {
        let Value::Array(entry) = entry else { return None };
        let [Value::Int(first), Value::Int(last), nodes @ ..] = &entry[..] else { return None };
        let addresses: Vec<_> = nodes.iter().map(node).collect::<Option<_>>()?;
        Some((u16::try_from(*first).ok()?, u16::try_from(*last).ok()?, addresses))
    };
    entries.iter().map(range).collect()
}

fn address(host: &str, port: u16, asked: &Address) -> Address {
    match (host, asked) {
        ("" | "?", Address::Tcp { host, .. }) => Address::Tcp { host: host.clone(), port },
        _ => Address::Tcp { host: host.to_owned(), port },
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Elsewhere {
    Moved(u16, Address),
    /// On its way there, and this lock has arrived.
    Ask(Address),
}

/// Reads what a server said that does not have the slot: `MOVED 3999 127.0.0.1:6381`.
pub(super) fn elsewhere(code: &str, details: &str, asked: &Address) -> Option<Elsewhere> {
    let (slot, place) = details.split_once(' ')?;
    let (host, port) = place.trim().rsplit_once(':')?;
    let (slot, to) = (slot.parse().ok()?, address(host, port.parse().ok()?, asked));
    match code {
        "MOVED" => Some(Elsewhere::Moved(slot, to)),
        "ASK" => Some(Elsewhere::Ask(to)),
        _ => None,
    }
}

#[cfg(test)]
#[cfg(kit)]
mod tests;
