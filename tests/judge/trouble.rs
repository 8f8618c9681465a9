//! What happens to the processes, to their ways to the store, and to the store.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::sentry::Sentry;
#[cfg(feature = "postgres")]
use super::stores::Database;
use super::stores::{LIMIT, Store, eventually_free, ms, secs};
use super::verdict::{STEADY, Verdict};
use super::{NAMES, WINDOW};
use kit::history::now;
use kit::wait::Metronome;
use kit::{Child, Dice, End, Mode, Mysql, Offset, Proxy, Server, chaos_length};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A process is killed, and another one takes its place.
    Killed,
    /// One to five processes stand still, some of the times until their windows are over.
    Row,
    /// From now on, what one process sends or hears is late, lost or cut off.
    Link,
    /// The server is killed and comes back with all its data.
    Restarted,
    /// A foreign client publishes on the channels of those who wait.
    Flood,
    /// A member of a quorum stands still.
    Stopped,
    /// The clock of one member of a quorum jumps.
    Clock,
    /// The server loses all its data, or a queue.
    Forgets,
    /// An operator cancels what some sessions do, or ends them.
    Ended,
    /// An operator sets limits for sessions that begin from now on, or takes them back.
    Settings,
    /// The standby, or the replica, hears nothing for a moment, and waits for it are ended.
    StandbyCut,
    /// The primary dies, at times while its standby hears nothing, and that one takes its place.
    FailedOver,
}

pub struct Run<'a> {
    pub troubles: &'a [Trouble],
    /// Besides the steady one.
    pub workers: usize,
    /// Half of it and twice as much, too.
    pub ttl: Duration,
    /// For how long a lock may lie free while the steady one waits.
    pub idle: Duration,
}

/// A store on which a run takes place, and its processes.
struct Scene<'a> {
    store: Store,
    /// Of a MySQL that waits for one.
    replica: Option<Mysql>,
    /// One before each process but the steady one.
    proxies: Vec<Proxy>,
    /// When the store was not to be had.
    away: Vec<(Duration, Duration)>,
    dir: &'a Path,
    urls: Vec<String>,
    ttl: Duration,
    io_timeout: Duration,
    children: Vec<Child>,
    started: usize,
    dice: Dice,
}

impl Run<'_> {
    /// Prints what it was like, and checks what holds in every run: fences are in order, and no lock
    /// was left free for long.
    pub fn rage(&self, store: Store) -> Verdict {
        self.rage_beside(store, None)
    }

    /// The same, with a replica that a MySQL waits for.
    pub fn rage_beside(&self, store: Store, replica: Option<Mysql>) -> Verdict {
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        for name in ["letters", "drafts"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let metronome = Metronome::start();
        let mut scene = Scene::set(store, self, dir.path());
        scene.replica = replica;
        let sentry = Sentry::of(&scene.store);
        let (start, mut struck) = (Instant::now(), Vec::new());
        // On a busy machine little happens in that time: then it goes on.
        let is_little = |away: &[_]| Verdict::of(dir.path(), now(), None, away).leases <= 5;
        while start.elapsed() < chaos_length(4, 90)
            || start.elapsed() < secs(60) && is_little(&scene.away)
        {
            std::thread::sleep(scene.dice.ms_below(250));
            let trouble = self.troubles[scene.dice.below(self.troubles.len() as u64) as usize];
            struck.push(trouble);
            scene.strike(trouble);
        }
        let unknown = scene.end();
        let free = sentry.map(Sentry::free);
        let verdict = Verdict::of(dir.path(), now(), free.as_ref(), &scene.away);
        let client = scene.store.client();
        // One that was handed on and that nobody has gone on with stays taken for its ttl.
        if fs::read_dir(dir.path().join("letters")).unwrap().next().is_none() {
            NAMES.iter().for_each(|name| eventually_free(&client, name));
        }
        let stall = metronome.longest_gap();
        let count = |kind: &Trouble| struck.iter().filter(|struck| *struck == kind).count();
        let counts: Vec<_> = self.troubles.iter().map(|kind| (kind, count(kind))).collect();
        println!("{counts:?}, {unknown} unknown outcomes, a stall of {stall:?}\n{verdict}");
        assert!(verdict.leases > 5, "nothing happened");
        assert_eq!(verdict.out_of_order(), 0);
        assert!(verdict.idle.0 < self.idle + stall * 5, "{:?}", verdict.idle);
        verdict
    }
}

impl Scene<'_> {
    fn set<'a>(store: Store, run: &Run<'_>, dir: &'a Path) -> Scene<'a> {
        let mut urls = vec![store.url(); run.workers + 1];
        let (mut proxies, mut io_timeout) = (Vec::new(), secs(10));
        if run.troubles.contains(&Trouble::Link) {
            let port = store.port().expect("links are those to one server");
            proxies = (0..run.workers).map(|_| Proxy::start(port)).collect();
            urls.splice(1.., proxies.iter().map(|proxy| store.url_through(proxy.port())));
            // A connection takes most stores several round trips.
            io_timeout = if matches!(store, Store::Redis(_)) { ms(250) } else { ms(500) };
        }
        let dice = Dice::from_env("KIT_SEED");
        let (away, children) = (Vec::new(), Vec::new());
        let mut scene = Scene {
            store,
            replica: None,
            proxies,
            away,
            dir,
            urls,
            ttl: run.ttl,
            io_timeout,
            children,
            started: 0,
            dice,
        };
        for place in 0..=run.workers {
            let child = scene.start(place);
            scene.children.push(child);
        }
        scene
    }

    fn start(&mut self, place: usize) -> Child {
        let name = if place == 0 { STEADY.to_owned() } else { format!("w{}", self.started) };
        self.started += 1;
        let [ttl, io_timeout] = [self.ttl, self.io_timeout].map(|span| span.as_millis() as u64);
        let numbers = [ttl, io_timeout, self.dice.below(u64::MAX)].map(|number| number.to_string());
        let ([ttl, io_timeout, seed], dir) = (&numbers, self.dir.display().to_string());
        Child::start("worker", &[&self.urls[place], ttl, io_timeout, &dir, &name, seed])
    }

    /// How many outcomes were unknown to those who lived to tell.
    fn end(&mut self) -> u64 {
        self.proxies.iter_mut().for_each(Proxy::deliver);
        self.children.iter_mut().for_each(|child| child.tell("over"));
        let mut unknown = 0;
        for child in &mut self.children {
            unknown += child.rest(LIMIT * 2)[0].parse::<u64>().unwrap();
            assert!(child.wait(LIMIT).success());
        }
        unknown
    }

    fn server(&mut self) -> &mut Server {
        match &mut self.store {
            Store::Redis(server) => server,
            _ => panic!("not on this store"),
        }
    }

    fn nodes(&self) -> &[Server] {
        match &self.store {
            Store::Quorum(quorum) => &quorum.nodes,
            _ => panic!("not on this store"),
        }
    }

    fn strike(&mut self, trouble: Trouble) {
        let workers = self.children.len() as u64 - 1;
        let place = 1 + self.dice.below(workers) as usize;
        match trouble {
            Trouble::Killed => {
                self.children[place].kill();
                self.children[place] = self.start(place);
            }
            Trouble::Row => {
                let row = 1 + self.dice.below(workers.min(5)) as usize;
                let row = (0..row).map(|more| 1 + (place + more) % workers as usize);
                row.clone().for_each(|place| self.children[place].stop());
                // Once in three times until the one behind them has had its turn.
                let most = if self.dice.once_in(3) { WINDOW * 5 + secs(3) } else { WINDOW * 2 };
                std::thread::sleep(self.dice.ms_below(most.as_millis() as u64));
                row.for_each(|place| self.children[place].cont());
            }
            Trouble::Link => {
                // Until the next one's turn; what was held back lands long after its time.
                self.proxies.iter_mut().for_each(Proxy::deliver);
                self.proxies[place - 1].set(mode(&mut self.dice));
            }
            Trouble::Restarted => {
                let (from, gone) = (now(), self.dice.ms_below(100));
                self.store.crash();
                std::thread::sleep(gone);
                self.store.start_again();
                // Until all have come back.
                self.away.push((from, now() + secs(1)));
            }
            Trouble::Flood => self.flood(),
            Trouble::Stopped => {
                let length = self.dice.ms_below(400);
                let node = &self.nodes()[place % 3];
                node.stop();
                std::thread::sleep(length);
                node.cont();
            }
            Trouble::Clock => {
                let (span, ahead) = (self.dice.ms_below(120_000), self.dice.once_in(2));
                let offset = if ahead { Offset::Ahead(span) } else { Offset::Behind(span) };
                self.nodes()[0].shift_clock(offset);
            }
            Trouble::Ended => self.end_sessions(),
            Trouble::Settings => self.set_limits(),
            Trouble::StandbyCut => self.cut_standby(),
            Trouble::FailedOver => self.fail_over(),
            Trouble::Forgets => {
                let queue = format!("leasehold:queue:{{{}}}", NAMES[0]);
                let forget = [vec!["FLUSHALL"], vec!["DEL", &queue]];
                let which = self.dice.below(2) as usize;
                self.server().cmd(&forget[which]);
            }
        }
    }

    /// What an operator can say to some sessions, whatever they do.
    fn end_sessions(&mut self) {
        let (is_mild, most) = (self.dice.once_in(2), 1 + self.dice.below(4));
        match &self.store {
            #[cfg(feature = "postgres")]
            Store::Postgres(database) => {
                let how = if is_mild { "pg_cancel_backend" } else { "pg_terminate_backend" };
                let end = format!(
                    "SELECT {how}(pid) FROM pg_stat_activity WHERE application_name = 'leasehold'
                     ORDER BY (wait_event = 'SyncRep') IS TRUE DESC, random() LIMIT {most}"
                );
                let _ = database.server().try_sql("postgres", &end);
            }
            #[cfg(feature = "mysql")]
            Store::Mysql(database) => {
                let how = if is_mild { "KILL QUERY" } else { "KILL" };
                let some = format!(
                    "SELECT CONCAT('{how} ', id, ';') FROM information_schema.processlist
                     WHERE db = '{}' ORDER BY RAND() LIMIT {most}",
                    database.name
                );
                for kill in database.server().sql("", &some).lines() {
                    // It may have gone.
                    let _ = database.server().try_sql("", kill);
                }
            }
            _ => panic!("not on this store"),
        }
    }

    fn set_limits(&mut self) {
        let which = self.dice.below(4) as usize;
        match &self.store {
            #[cfg(feature = "postgres")]
            Store::Postgres(database) => {
                let set = [
                    "RESET ALL",
                    "SET idle_session_timeout = '100ms'",
                    "SET lock_timeout = '5ms'",
                    "SET client_min_messages = 'error'",
                ];
                let _ = database
                    .server()
                    .try_sql("postgres", &format!("ALTER ROLE postgres {}", set[which]));
            }
            #[cfg(feature = "mysql")]
            Store::Mysql(database) => {
                let set = [
                    "max_statement_time = 0, wait_timeout = 28800",
                    "max_statement_time = 0.05",
                    "wait_timeout = 1",
                    "innodb_lock_wait_timeout = 1",
                ];
                database.server().sql("", &format!("SET GLOBAL {}", set[which]));
            }
            _ => panic!("not on this store"),
        }
    }

    fn cut_standby(&mut self) {
        let length = self.dice.ms_below(300);
        #[cfg(feature = "postgres")]
        if let Store::Postgres(Database { standby: Some(standby), .. }) = &self.store {
            let primary = standby.cut_off();
            std::thread::sleep(length);
            self.end_sessions();
            let Store::Postgres(Database { standby: Some(standby), .. }) = &self.store else {
                return;
            };
            standby.follow(&primary);
            return;
        }
        let Some(replica) = &self.replica else { panic!("not on this store") };
        replica.sql("", "STOP SLAVE");
        std::thread::sleep(length);
        self.end_sessions();
        if let Some(replica) = &self.replica {
            replica.sql("", "START SLAVE");
        }
    }

    #[cfg(feature = "postgres")]
    fn fail_over(&mut self) {
        // Long enough for what the standby knows of to end.
        let (is_cut, length) = (self.dice.once_in(2), self.dice.ms_below(1500));
        if is_cut {
            let Store::Postgres(Database { standby: Some(standby), .. }) = &self.store else {
                panic!("not on this store")
            };
            standby.cut_off();
            std::thread::sleep(length);
            // Who believes in what this makes of a grant still does when another one has the lock.
            let end = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity
                WHERE wait_event = 'SyncRep'";
            if let Store::Postgres(database) = &self.store {
                let _ = database.server().try_sql("postgres", end);
            }
        }
        let from = now();
        let Store::Postgres(database) = &mut self.store else { return };
        let Some(next) = database.standby.take() else { return };
        let Some(mut old) = database.own.replace(next) else { return };
        old.crash();
        let port = old.port();
        let next = database.server();
        // It grants at once, and is not replaced before it has a standby of its own.
        next.sql("postgres", "SELECT pg_promote()");
        drop(old);
        let standby = next.standby_at(port);
        next.wait_for_standbys("*");
        database.standby = Some(standby);
        self.away.push((from, now() + secs(1)));
    }

    #[cfg(not(feature = "postgres"))]
    fn fail_over(&mut self) {
        panic!("not on this store");
    }

    /// Messages that look as if they came from the server, and others.
    fn flood(&mut self) {
        let mut connection = self.server().connection();
        let mut channels = redis::cmd("PUBSUB");
        channels.arg("CHANNELS").arg("leasehold:wake:*");
        let channels: Vec<String> = channels.query(&mut connection).unwrap();
        let dice = &mut self.dice;
        for channel in channels.iter().cycle().take(channels.len() * 20) {
            let token = format!("{:016x}{:016x}", dice.below(u64::MAX), dice.below(u64::MAX));
            let (fence, span, name) = (dice.below(1 << 53), dice.below(5000), NAMES[0]);
            let text = match dice.below(5) {
                0 => format!("G {token} {fence} 64 {fence} {span} {name}"),
                1 => format!("F {token} {name}"),
                2 => "G ".repeat(dice.below(10_000) as usize),
                3 => String::new(),
                _ => format!("G {token} 0 {fence} -1 {name}"),
            };
            let mut publish = redis::cmd("PUBLISH");
            let _: i64 = publish.arg(channel).arg(text).query(&mut connection).unwrap();
        }
    }
}

/// As `Proxy` has them.
fn mode(dice: &mut Dice) -> Mode {
    let end = if dice.below(2) == 0 { End::Fin } else { End::Reset };
    match dice.below(12) {
        0 => Mode::SwallowReplies,
        1 => Mode::DelayRequests(dice.ms_below(350)),
        2 => Mode::Silent,
        3 => Mode::Dribble(dice.ms_below(8)),
        4 | 5 => Mode::LoseReply(end),
        6 => Mode::CutRequest(dice.below(200) as usize),
        7 => Mode::HoldRequests,
        8 => Mode::Refuse,
        // Late replies are what tempts a holder to rely on its lease for too long.
        _ => Mode::DelayReplies(dice.ms_below(240)),
    }
}
