//! What happens to clients, to their ways to the store, and to the store.

use std::time::{Duration, Instant};

use kit::history::now;
use kit::{Dice, End, Mode, Proxy};
use nix::sys::signal::Signal;

use super::party::Stage;
use super::store::Target;
use super::{NAMES, Scene};
use crate::stores::{Store, ms, secs};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    HolderKilled,
    WaiterKilled,
    ClientKilled,
    HolderStopped,
    WaiterStopped,
    ClientStopped,
    /// From now on, what one client sends or hears is late, lost or cut off.
    Link,
    /// What all of them hear is late.
    LinksSlow,
    ServerStopped,
    /// It is killed, and comes back with all its data.
    ServerRestarted,
    /// SCRIPT FLUSH.
    ScriptsFlushed,
    /// CLIENT KILL; pg_terminate_backend; KILL.
    ConnectionsClosed,
    /// pg_cancel_backend; KILL QUERY.
    Cancelled,
    MemberStopped,
    /// A member of an etcd's cluster is killed, and comes back with its data.
    MemberRestarted,
    /// FLUSHALL, or it is killed and comes back empty.
    DataLost,
    /// A member of a quorum is killed, and comes back empty.
    MemberEmptied,
    /// Two of three lose what they have, at once: more than a quorum bears.
    MembersEmptied,
    /// A replica becomes the Sentinels' master.
    FailedOver,
    /// A slot of a Cluster, with a lock, goes to another node.
    SlotMoved,
}

use Kind::*;

/// What is still to happen, in the order of the dice, before all of it begins again.
pub(super) struct Deck<'a> {
    kinds: Vec<Kind>,
    dice: &'a mut Dice,
    /// When a member of a quorum came back empty last.
    emptied: Option<Instant>,
}

impl Deck<'_> {
    pub(super) fn new(dice: &mut Dice) -> Deck<'_> {
        Deck { kinds: Vec::new(), dice, emptied: None }
    }

    pub(super) fn pause(&mut self) -> Duration {
        self.dice.ms_below(400)
    }

    fn next(&mut self, to_store: &[Kind]) -> Kind {
        if self.kinds.is_empty() {
            let to_clients = [ClientKilled, ClientStopped, ClientStopped];
            self.kinds = to_store.iter().chain(&to_clients).copied().collect();
        }
        let at = self.dice.below(self.kinds.len() as u64) as usize;
        self.kinds.swap_remove(at)
    }

    /// What happened now. The choices come from the dice alone; what a client was doing then is seen.
    pub(super) fn strike(
        &mut self,
        scene: &Scene<'_>,
        target: &mut Target,
        links: &mut [Proxy],
    ) -> Kind {
        let (mut kind, length) = (self.next(target.troubles()), self.dice.ms_below(1000));
        if kind == MemberEmptied {
            // One at a time: its wait begins when a client finds it so, and is as long as the longest ttl.
            if self.emptied.is_some_and(|at| at.elapsed() < secs(5)) {
                kind = MemberStopped;
            } else {
                self.emptied = Some(Instant::now());
            }
        }
        let others = scene.seats.len() - 1;
        let place = 1 + self.dice.below(others as u64) as usize;
        let stage = scene.seats[place].stage();
        match kind {
            ClientKilled => {
                scene.seats[place].kill();
                match stage {
                    Stage::Holding => HolderKilled,
                    Stage::Waiting => WaiterKilled,
                    _ => ClientKilled,
                }
            }
            ClientStopped => {
                // Once in three times some of those who would be next stand still, too.
                let more = if self.dice.once_in(3) { self.dice.below(4) as usize } else { 0 };
                let row: Vec<_> = (0..=more).map(|more| 1 + (place - 1 + more) % others).collect();
                let all = |signal| row.iter().for_each(|place| scene.seats[*place].signal(signal));
                all(Signal::SIGSTOP);
                // Now and then beyond the longest ttl.
                let factor = if scene.is_control { 4 } else { 3 };
                let is_long = self.dice.once_in(if scene.is_control { 2 } else { 3 });
                std::thread::sleep(if is_long { length * factor } else { length });
                all(Signal::SIGCONT);
                match stage {
                    Stage::Holding => HolderStopped,
                    Stage::Waiting => WaiterStopped,
                    _ => ClientStopped,
                }
            }
            kind => {
                strike_store(scene, target, links, kind, self.dice, length);
                kind
            }
        }
    }
}

fn strike_store(
    scene: &Scene<'_>,
    target: &mut Target,
    links: &mut [Proxy],
    kind: Kind,
    dice: &mut Dice,
    length: Duration,
) {
    let (from, number) = (now(), dice.below(1 << 16) as usize);
    match kind {
        Link if links.is_empty() => target.member_link(number, mode(dice)),
        Link => {
            // Until the next one's turn; what was held back lands long after its time.
            links.iter_mut().for_each(Proxy::deliver);
            links[number % links.len()].set(mode(dice));
        }
        LinksSlow => links.iter_mut().for_each(|link| link.set(Mode::DelayReplies(ms(180)))),
        ServerStopped => {
            target.store.stop();
            std::thread::sleep(length);
            target.store.go_on();
        }
        ServerRestarted => {
            target.store.crash();
            std::thread::sleep(length / 8);
            target.store.start_again();
        }
        ScriptsFlushed => {
            for server in target.servers() {
                let _ = server.try_cmd(&["SCRIPT", "FLUSH"]);
            }
        }
        ConnectionsClosed | Cancelled => close_connections(target, kind == Cancelled, dice),
        MemberStopped => stop_member(target, number, length / 2),
        MemberRestarted => {
            if let Store::Etcd(etcd) = &mut target.store {
                etcd.kill(number % MEMBERS);
                std::thread::sleep(length / 2);
                etcd.start_again(number % MEMBERS);
            }
        }
        DataLost => lose_data(target, dice),
        MemberEmptied => empty_member(target, number),
        MembersEmptied => {
            for server in target.servers().iter().cycle().skip(number % 3).take(2) {
                let _ = server.try_cmd(&["FLUSHALL"]);
            }
        }
        FailedOver => {
            if let Store::Sentinels(group) = &target.store {
                group.fail_over();
            }
        }
        SlotMoved => move_slot(target, number),
        _ => {}
    }
    if !matches!(kind, Link | LinksSlow | ScriptsFlushed | ConnectionsClosed | Cancelled) {
        // Until all have come back, and a store that waits after lost data has waited.
        let waits = matches!(kind, FailedOver | DataLost);
        scene.away.lock().unwrap().push((from, now() + secs(if waits { 4 } else { 1 })));
    }
}

/// Of an etcd's cluster.
pub(super) const MEMBERS: usize = 3;

fn lose_data(target: &mut Target, dice: &mut Dice) {
    let Store::Redis(server) = &mut target.store else { return };
    if dice.once_in(2) {
        let _ = server.try_cmd(&["FLUSHALL"]);
    } else {
        server.restart_empty();
    }
}

fn close_connections(target: &Target, is_mild: bool, dice: &mut Dice) {
    let most = 1 + dice.below(4);
    match &target.store {
        Store::Postgres(database) => {
            let how = if is_mild { "pg_cancel_backend" } else { "pg_terminate_backend" };
            let end = format!(
                "SELECT {how}(pid) FROM pg_stat_activity WHERE application_name = 'leasehold'
                 ORDER BY random() LIMIT {most}"
            );
            let _ = database.server().try_sql("postgres", &end);
        }
        Store::Mysql(database) => {
            let how = if is_mild { "KILL QUERY" } else { "KILL" };
            let some = format!(
                "SELECT CONCAT('{how} ', id, ';') FROM information_schema.processlist
                 WHERE db = '{}' ORDER BY RAND() LIMIT {most}",
                database.name
            );
            let kills = database.server().try_sql("", &some).unwrap_or_default();
            for kill in kills.lines() {
                // It may have gone.
                let _ = database.server().try_sql("", kill);
            }
        }
        _ => {
            let class = if dice.once_in(2) { "normal" } else { "pubsub" };
            for server in target.servers() {
                let _ = server.try_cmd(&["CLIENT", "KILL", "TYPE", class, "SKIPME", "yes"]);
            }
        }
    }
}

/// For less time than others wait before they replace it.
fn stop_member(target: &Target, number: usize, length: Duration) {
    if let Store::Etcd(etcd) = &target.store {
        etcd.process(number % MEMBERS).stop();
        std::thread::sleep(length);
        etcd.process(number % MEMBERS).cont();
        return;
    }
    let servers = match &target.store {
        Store::Sentinels(group) => group.sentinels.iter().collect(),
        _ => target.servers(),
    };
    let server = servers[number % servers.len()];
    server.stop();
    std::thread::sleep(length);
    server.cont();
}

/// The others have what it forgot.
fn empty_member(target: &mut Target, number: usize) {
    let Store::Quorum(quorum) = &mut target.store else { return };
    let count = quorum.nodes.len();
    let server = &mut quorum.nodes[number % count];
    server.kill();
    std::thread::sleep(ms(50));
    server.start_again();
}

fn move_slot(target: &Target, number: usize) {
    let Store::Cluster(cluster) = &target.store else { return };
    let plain = NAMES.iter().filter(|name| !name.contains(['%', '<']));
    let plain: Vec<_> = plain.collect();
    let slot = cluster.slot_of(plain[number % plain.len()]);
    let Some(from) = cluster.node_of(slot) else { return };
    cluster.move_slot(slot, (from + 1 + number % 2) % cluster.nodes.len());
}

/// As `Proxy` has them.
fn mode(dice: &mut Dice) -> Mode {
    let end = if dice.once_in(2) { End::Fin } else { End::Reset };
    match dice.below(13) {
        0 => Mode::SwallowReplies,
        1 => Mode::DelayRequests(dice.ms_below(350)),
        2 => Mode::Silent,
        3 => Mode::Dribble(dice.ms_below(8)),
        4 | 5 => Mode::LoseReply(end),
        6 => Mode::CutRequest(dice.below(200) as usize),
        7 => Mode::HoldRequests,
        8 => Mode::Refuse,
        9 => Mode::SwallowReply,
        // Late replies are what tempts a holder to rely on its lease for too long.
        _ => Mode::DelayReplies(dice.ms_below(240)),
    }
}
