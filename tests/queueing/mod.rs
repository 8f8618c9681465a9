//! Waiters of one name, in this process and in others, and what must be true of their turns.

// Each test file takes this whole module in and uses a part of it.
#![allow(dead_code, unreachable_pub, unused_imports, unused_macros)]

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use leasehold::{Client, Config, ErrorKind, Lease, Lock};

use crate::stores::{LIMIT, Store, make_memory, secs};
pub use kit::history::now;
use kit::{Child, Hold, Server, child, eventually, history};

pub(crate) const ROLES: child::Roles = &[("waiter", waiter), ("crowd", crowd)];

pub const NAME: &str = "n";
pub const QUEUE: &str = "leasehold:queue:{n}";

/// Never two at once, and fences in the order of holding.
#[track_caller]
pub fn judge(turns: Vec<Hold>) {
    let wrong = history::judge(&turns);
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// One turn of so long a hold, and then the release.
pub fn take_turn(lock: &Lock, hold: Duration) -> Hold {
    let asked = now();
    hold_for(asked, lock.acquire().unwrap(), hold)
}

/// The same, of a lease that was asked for at a moment.
pub fn hold_for(asked: Duration, lease: Lease, hold: Duration) -> Hold {
    let mut turn = Hold::begin(asked, lease.fence());
    loop {
        let over = now() >= turn.from + hold;
        turn.look(|| lease.is_valid());
        if over {
            break;
        }
        std::thread::sleep(Duration::from_millis(1).min(hold));
    }
    drop(lease);
    turn
}

/// A client that bears with a slow machine.
pub fn config(url: &str) -> Config {
    make_memory(url);
    Config::from_url(url).unwrap().io_timeout(secs(10))
}

pub fn client(config: Config) -> Client {
    Client::with_config(config).unwrap()
}

/// A store with a queue that can be looked into.
pub trait Queues {
    fn url(&self) -> String;
    /// How many clients stand in the queue.
    fn queued(&self) -> usize;
    /// Nothing of a wait stays for ever.
    fn assert_all_ends(&self);
}

impl Queues for Server {
    fn url(&self) -> String {
        self.url()
    }

    fn queued(&self) -> usize {
        redis::cmd("ZCARD").arg(QUEUE).query(&mut self.connection()).unwrap()
    }

    #[track_caller]
    fn assert_all_ends(&self) {
        assert_all_keys_end(self);
    }
}

impl Queues for Store {
    fn url(&self) -> String {
        self.url()
    }

    fn queued(&self) -> usize {
        match self {
            Store::Redis(server) => server.queued(),
            #[cfg(feature = "sqlite")]
            Store::File(_) => self.rows("SELECT count(*) FROM waiter") as usize,
            #[cfg(feature = "postgres")]
            Store::Postgres(database) => {
                let count = "SELECT coalesce(sum(cardinality(waiters)), 0) FROM leasehold.lease";
                database.sql(count).parse().unwrap()
            }
            #[cfg(feature = "mysql")]
            Store::Mysql(database) => {
                database.sql("SELECT COUNT(*) FROM leasehold_waiter").parse().unwrap()
            }
            #[cfg(feature = "zookeeper")]
            Store::Zookeeper(chroot) => {
                // Nodes that end with their sessions.
                let said = chroot.server().word("dump").unwrap();
                let below = format!("{}/", chroot.path);
                let is_ours = |line: &str| line.trim().starts_with(&below) && line.contains("/w-");
                said.lines().filter(|line| is_ours(line)).count()
            }
            #[cfg(feature = "etcd")]
            Store::Etcd(etcd) => {
                let keys = etcd.ctl(&["get", "--prefix", "--keys-only", "leasehold/lock/n/"]);
                keys.lines().filter(|key| !key.is_empty()).count().saturating_sub(1)
            }
            Store::Memory(_) => {
                let state = self.client().lock(NAME).inspect().unwrap();
                state.waiters.len() + state.more_waiters as usize
            }
            _ => panic!("not on this store"),
        }
    }

    /// A row stays for the sake of its fence.
    #[track_caller]
    fn assert_all_ends(&self) {
        match self {
            Store::Redis(server) => server.assert_all_ends(),
            _ => assert_eq!(self.queued(), 0),
        }
    }
}

/// Makes a test of each function for each kind of store that keeps waiters in order.
macro_rules! on_each_queue {
    ($($promise:ident,)+) => {
        crate::queueing::on_queue!(on_redis, redis, $($promise)+);
        #[cfg(feature = "sqlite")]
        crate::queueing::on_queue!(on_a_file, file, $($promise)+);
        #[cfg(feature = "testing")]
        crate::queueing::on_queue!(on_memory, memory, $($promise)+);
        #[cfg(feature = "postgres")]
        crate::queueing::on_queue!(on_postgres, postgres, $($promise)+);
        #[cfg(feature = "mysql")]
        crate::queueing::on_queue!(on_mysql, mysql, $($promise)+);
        #[cfg(feature = "zookeeper")]
        crate::queueing::on_queue!(on_zookeeper, zookeeper, $($promise)+);
        #[cfg(feature = "etcd")]
        crate::queueing::on_queue!(on_etcd, etcd, $($promise)+);
    };
}
pub(crate) use on_each_queue;

macro_rules! on_queue {
    ($module:ident, $kind:ident, $($promise:ident)+) => {
        mod $module {
            $(#[test] fn $promise() {
                if !crate::stores::cannot::is_left_out(stringify!($promise), stringify!($kind)) {
                    super::$promise(crate::stores::Store::$kind);
                }
            })+
        }
    };
}
pub(crate) use on_queue;

pub fn queued(server: &impl Queues) -> usize {
    server.queued()
}

#[track_caller]
pub fn eventually_queued(server: &impl Queues, count: usize) {
    let start = now();
    loop {
        let queued = server.queued();
        if queued == count {
            return;
        }
        assert!(now() - start < LIMIT, "{queued} wait, and not {count}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// How many connections listen for wake-ups.
pub fn listeners(server: &Server) -> usize {
    let mut list = redis::cmd("CLIENT");
    list.arg(&["LIST", "TYPE", "pubsub"]);
    let list: String = list.query(&mut server.connection()).unwrap();
    list.lines().filter(|line| !line.is_empty()).count()
}

#[track_caller]
pub fn eventually_heard_by(server: &Server, count: usize) {
    eventually(LIMIT, || listeners(server) == count);
}

/// A waiter has looked at the lock, which reads two keys and changes nothing.
pub fn is_look(command: &str) -> bool {
    let reads_two_keys = command.starts_with("EVALSHA") && command.contains("\" \"2\" \"");
    reads_two_keys && !command.contains("\"claim\"")
}

/// Nothing stays for ever in the server.
#[track_caller]
pub fn assert_all_keys_end(server: &Server) {
    let mut connection = server.connection();
    let keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    for key in keys {
        let left: i64 = redis::cmd("PTTL").arg(&key).query(&mut connection).unwrap();
        // -2: it has ended since.
        assert!(left != -1, "{} has no ttl", String::from_utf8_lossy(&key));
    }
}

/// A thread whose function was asked so often whether it goes on is in line: the first time may be before
/// it tries, and the second one before it joins, where its first request took as long as the pause between.
pub const ASKED_IN_LINE: u32 = 3;

/// A thread that is in line when this returns, and takes one turn.
pub fn in_line<'scope>(
    scope: &'scope Scope<'scope, '_>,
    lock: Lock,
    hold: Duration,
) -> ScopedJoinHandle<'scope, Hold> {
    let (waits, is_in_line): (_, Receiver<()>) = channel();
    let thread = scope.spawn(move || {
        let asked = now();
        let lease = lock.acquire_unless(|| waits.send(()).is_err()).unwrap();
        let (from, fence) = (now(), lease.fence());
        std::thread::sleep(hold);
        let until = now();
        assert!(lease.is_valid());
        lease.release().unwrap();
        Hold { asked, from, until, fence }
    });
    for _ in 0..ASKED_IN_LINE {
        is_in_line.recv_timeout(LIMIT).expect("it waits");
    }
    // The rest is not looked at, and an end of it would stop the wait.
    std::mem::forget(is_in_line);
    thread
}

/// The turns of threads that come again and again, each for as long as it is to with so many turns.
/// A turn ends when all others that still come are in line.
pub fn again_and_again(
    lock: &Lock,
    threads: usize,
    goes_on: impl Fn(usize) -> bool + Sync,
) -> Vec<Vec<Hold>> {
    // Or gone.
    let in_line: Vec<_> = (0..threads).map(|_| AtomicBool::new(false)).collect();
    let come = |me: usize| {
        let mut turns = Vec::new();
        while goes_on(turns.len()) {
            let (asked, mut asks) = (now(), 0);
            let check = || {
                asks += 1;
                in_line[me].fetch_or(asks == ASKED_IN_LINE, SeqCst);
                false
            };
            let lease = lock.acquire_unless(check).unwrap();
            in_line[me].store(false, SeqCst);
            let (from, fence) = (now(), lease.fence());
            let others = || in_line.iter().enumerate().filter(|(who, _)| *who != me);
            eventually(LIMIT, || others().all(|(_, in_line)| in_line.load(SeqCst)));
            let until = now();
            lease.release().unwrap();
            turns.push(Hold { asked, from, until, fence });
        }
        in_line[me].store(true, SeqCst);
        turns
    };
    std::thread::scope(|scope| {
        let come = &come;
        let threads: Vec<_> = (0..threads).map(|me| scope.spawn(move || come(me))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// A process that puts a thread in line for each word it hears, a turn's name, and says `waits`,
/// `has <moment> <fence>` and, when told so, gives it up and says `gave`, all with that name.
pub fn waiter(args: &[String]) {
    let window = Duration::from_millis(args[1].parse().unwrap());
    let client = client(config(&args[0]).claim_window(window));
    while let Some(name) = child::hear() {
        let lock = client.lock(NAME).wait(secs(100));
        std::thread::spawn(move || {
            let mut asked = 0;
            let waits = || {
                asked += 1;
                if asked == ASKED_IN_LINE {
                    child::say(&format!("{name} waits"));
                }
                false
            };
            match lock.acquire_unless(waits) {
                Ok(lease) => {
                    child::say(&format!("{name} has {} {}", now().as_nanos(), lease.fence()));
                    drop(lease);
                }
                Err(error) => child::say(&format!("{name} failed {:?}", error.kind())),
            }
        });
    }
    // Dropping it closes it.
    drop(client);
}

/// Starts such a process, with one thread in line.
pub fn start_waiter(server: &impl Queues, window: Duration) -> Child {
    let mut waiter = Child::start("waiter", &[&server.url(), &window.as_millis().to_string()]);
    waiter.tell("w");
    assert_eq!(waiter.line(LIMIT), "w waits");
    waiter
}

/// When the next thread of such a process had its turn, and with which fence.
#[track_caller]
pub fn had_turn(waiter: &Child) -> (Duration, u64) {
    let line = waiter.line(LIMIT);
    let words: Vec<_> = line.split(' ').collect();
    let ["w", "has", at, fence] = words[..] else { panic!("{line}") };
    (Duration::from_nanos(at.parse().unwrap()), fence.parse().unwrap())
}

/// A process whose threads take turns: all say `ready` together when they wait for the first one.
pub fn crowd(args: &[String]) {
    let numbers: Vec<u64> = args[1..].iter().map(|text| text.parse().unwrap()).collect();
    let [threads, rounds, hold] = numbers[..] else { panic!("three numbers") };
    let client = client(config(&args[0]));
    let lock = client.lock(NAME).wait(secs(100));
    let (said, waits) = channel();
    let mut turns = Vec::new();
    std::thread::scope(|scope| {
        let crowd: Vec<_> = (0..threads)
            .map(|_| {
                let (lock, said) = (&lock, said.clone());
                let work = move || {
                    // Without a function to ask while it waits: that would be work.
                    said.send(()).unwrap();
                    let turn = |_| take_turn(lock, Duration::from_micros(hold));
                    (0..rounds).map(turn).collect::<Vec<_>>()
                };
                std::thread::Builder::new().stack_size(256 << 10).spawn_scoped(scope, work).unwrap()
            })
            .collect();
        for _ in 0..threads {
            waits.recv().unwrap();
        }
        child::say("ready");
        turns.extend(crowd.into_iter().flat_map(|thread| thread.join().unwrap()));
    });
    for turn in turns {
        child::say(&turn.to_line());
    }
    client.close().unwrap();
}

pub fn start_crowd(server: &impl Queues, [threads, rounds, hold_us]: [u64; 3]) -> Child {
    let numbers = [threads, rounds, hold_us].map(|number| number.to_string());
    Child::start("crowd", &[&server.url(), &numbers[0], &numbers[1], &numbers[2]])
}

/// All turns of such processes, which end by themselves.
#[track_caller]
pub fn turns_of(crowds: Vec<Child>) -> Vec<Hold> {
    let mut turns = Vec::new();
    for mut crowd in crowds {
        for line in crowd.rest(LIMIT * 5) {
            turns.push(Hold::from_line(&line).expect("a hold"));
        }
        assert!(crowd.wait(LIMIT).success());
    }
    turns
}

pub fn kind<T>(result: Result<T, leasehold::Error>) -> ErrorKind {
    result.err().expect("an error").kind()
}
