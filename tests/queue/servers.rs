//! Queues on servers that have a bad day: connections killed, restarts, lost data, other clients on
//! the same key, users with few rights.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::queueing::{
    self, NAME, assert_all_keys_end, client, config, eventually_queued, in_line, judge, kind,
    listeners, now, start_crowd, take_turn, turns_of,
};
use crate::stores::{LIMIT, STALL, holder, ms, open, secs};
use kit::{Child, Mode, Proxy, Server, eventually, unless_starved};
use leasehold::{Backoff, Client, ErrorKind, WaitMode};

fn crowds(server: &Server, processes: u64, numbers: [u64; 3]) -> Vec<Child> {
    let crowds: Vec<_> = (0..processes).map(|_| start_crowd(server, numbers)).collect();
    for crowd in &crowds {
        assert_eq!(crowd.line(LIMIT), "ready");
    }
    crowds
}

#[test]
fn wake_up_connections_that_are_killed_again_and_again_stop_nobody() {
    let server = Server::start();
    let held = open(&server.url()).lock(NAME).acquire().unwrap();
    let crowds = crowds(&server, 3, [4, 40, 3000]);
    eventually_queued(&server, 3);
    eventually(LIMIT, || listeners(&server) == 3);
    let over = std::sync::atomic::AtomicBool::new(false);
    let (turns, killed) = std::thread::scope(|scope| {
        let killer = scope.spawn(|| {
            let (mut connection, mut killed) = (server.connection(), 0u64);
            while !over.load(Ordering::Relaxed) {
                let mut kill = redis::cmd("CLIENT");
                kill.arg(&["KILL", "TYPE", "pubsub"]);
                killed += kill.query::<u64>(&mut connection).unwrap();
                std::thread::sleep(ms(30));
            }
            killed
        });
        held.release().unwrap();
        let turns = turns_of(crowds);
        over.store(true, Ordering::Relaxed);
        (turns, killer.join().unwrap())
    });
    assert_eq!(turns.len(), 3 * 4 * 40);
    assert!(killed > 10, "{killed} connections were killed");
    judge(turns);
    eventually_queued(&server, 0);
    assert_all_keys_end(&server);
}

#[test]
fn who_was_passed_over_while_it_could_not_be_told_asks_once_it_can() {
    let server = Server::start();
    let client = open(&server.url());
    let held = client.lock(NAME).acquire().unwrap();
    let deaf = queueing::start_waiter(&server, secs(1));
    deaf.stop();
    server.cmd(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    held.release().unwrap();
    eventually_queued(&server, 0);
    deaf.cont();
    // Not when the ttl of the lease that was released would have ended, in half a minute.
    queueing::had_turn(&deaf);
    assert_all_keys_end(&server);
}

#[test]
fn all_who_wait_while_the_server_is_restarted_empty_get_their_turn() {
    let mut server = Server::start();
    let client = open(&server.url());
    let held = client.lock(NAME).ttl(secs(3)).acquire().unwrap();
    let crowds = crowds(&server, 4, [25, 1, 1000]);
    eventually_queued(&server, 4);
    let fence = held.fence();
    server.restart_empty();
    let restarted = now();
    let turns = turns_of(crowds);
    assert_eq!(turns.len(), 100);
    // None of them waited for a time to run out that the lost data had set.
    let last = turns.iter().map(|turn| turn.from).max().unwrap();
    assert!(last - restarted < secs(10), "{:?}", last - restarted);
    assert!(turns.iter().all(|turn| turn.fence > fence));
    judge(turns);
    eventually(LIMIT, || !held.is_valid());
    eventually_queued(&server, 0);
    assert_all_keys_end(&server);
}

/// The holder of that moment may be one of two for a while; its fence is the smaller one.
#[test]
fn all_who_wait_while_everything_is_deleted_get_their_turn() {
    let server = Server::start();
    let client = open(&server.url());
    let held = client.lock(NAME).ttl(secs(1)).acquire().unwrap();
    let crowds = crowds(&server, 4, [4, 2, 1000]);
    eventually_queued(&server, 4);
    let fence = held.fence();
    server.cmd(&["FLUSHALL"]);
    let turns = turns_of(crowds);
    assert_eq!(turns.len(), 32);
    assert!(turns.iter().all(|turn| turn.fence > fence));
    judge(turns);
    eventually(LIMIT, || client.counters().lost == 1);
    assert!(!held.is_valid());
    eventually_queued(&server, 0);
    assert_all_keys_end(&server);
}

#[test]
fn a_key_that_another_program_held_is_taken_soon_after_it_is_deleted() {
    unless_starved(STALL, || {
        let server = Server::start();
        let (one, two) = (open(&server.url()), open(&server.url()));
        server.cmd(&["SET", NAME, "another's", "NX", "PX", "60000"]);
        std::thread::scope(|scope| {
            let one = in_line(scope, one.lock(NAME).wait(LIMIT), ms(5));
            let two = in_line(scope, two.lock(NAME).wait(LIMIT), ms(5));
            // Their pauses have become as long as they get.
            std::thread::sleep(ms(400));
            server.cmd(&["DEL", NAME]);
            let deleted = now();
            let turns = [one.join().unwrap(), two.join().unwrap()];
            let late = turns.map(|turn| turn.from - deleted);
            assert!(late.iter().all(|late| *late < ms(250)), "{late:?}");
            judge(turns.to_vec());
        });
        eventually_queued(&server, 0);
        assert_all_keys_end(&server);
    });
}

/// How often the library warned that waiters cannot be told.
static WARNINGS: AtomicU64 = AtomicU64::new(0);

struct Counting;

impl log::Log for Counting {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() == log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) && record.args().to_string().contains("waiters-untold ")
        {
            WARNINGS.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flush(&self) {}
}

/// A user who may do everything but this.
fn client_without(server: &Server, command: &str) -> Client {
    let without = format!("-{command}");
    server.cmd(&["ACL", "SETUSER", command, "reset", "on", ">pw", "~*", "&*", "+@all", &without]);
    client(config(&format!("redis://{command}:pw@127.0.0.1:{}", server.port())))
}

#[test]
fn who_may_not_subscribe_asks_again_and_again_and_says_so_once() {
    kit::child::alone(|| {
        log::set_logger(&Counting).unwrap();
        log::set_max_level(log::LevelFilter::Warn);
        let server = Server::start();
        let (holder, poor) = (open(&server.url()), client_without(&server, "subscribe"));
        for _ in 0..2 {
            let held = holder.lock(NAME).acquire().unwrap();
            std::thread::scope(|scope| {
                let waiters: Vec<_> =
                    (0..3).map(|_| in_line(scope, poor.lock(NAME).wait(LIMIT), ms(2))).collect();
                let asked = poor.counters().attempts;
                eventually(LIMIT, || poor.counters().attempts > asked + 3);
                held.release().unwrap();
                judge(waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect());
            });
        }
        assert_eq!(WARNINGS.load(Ordering::Relaxed), 1);
        let _held = holder.lock(NAME).acquire().unwrap();
        // Nobody who may listen is kept from it.
        let spin = poor.lock(NAME).wait_mode(WaitMode::Spin(Backoff::default()));
        assert_eq!(kind(spin.acquire_within(ms(100))), ErrorKind::Timeout);
        eventually_queued(&server, 0);
        assert_all_keys_end(&server);
    });
}

/// Nobody can be told by such a client; they find it by asking when its ttl would have ended.
#[test]
fn behind_one_who_may_not_publish_others_get_their_turn_by_asking() {
    let server = Server::start();
    let (poor, other) = (client_without(&server, "publish"), open(&server.url()));
    let lock = |client: &Client| client.lock(NAME).ttl(ms(600)).wait(LIMIT);
    let held = lock(&poor).acquire().unwrap();
    std::thread::scope(|scope| {
        let waiters = [
            in_line(scope, lock(&other), ms(2)),
            in_line(scope, lock(&poor), ms(2)),
            in_line(scope, lock(&other), ms(2)),
        ];
        held.release().unwrap();
        judge(waiters.map(|waiter| waiter.join().unwrap()).to_vec());
    });
    let turn = take_turn(&lock(&poor), Duration::ZERO);
    assert!(turn.fence > 0);
    eventually_queued(&server, 0);
    assert_all_keys_end(&server);
}

/// The message that hands a lock over can lie unread until its client listens again, for another
/// name and long after the lock was handed on.
#[test]
fn c5_no_message_that_lay_unread_gives_back_a_lock_that_was_left_taken() {
    let server = Server::start();
    let mut proxy = Proxy::start(server.port());
    let (holder_of_both, late) = (open(&server.url()), open(&proxy.url()));
    let held = holder_of_both.lock(NAME).acquire().unwrap();
    let _other = holder_of_both.lock("other").acquire().unwrap();
    std::thread::scope(|scope| {
        let waiter = late.lock(NAME).wait(LIMIT);
        let waiter = scope.spawn(move || waiter.acquire().unwrap());
        eventually_queued(&server, 1);
        // Its next poll is on its way while the lock is handed to it by a message.
        proxy.set_only(b"join", Mode::HoldRequests);
        redis::cmd("CLIENT")
            .arg(&["KILL", "TYPE", "pubsub"])
            .exec(&mut server.connection())
            .unwrap();
        eventually(LIMIT, || proxy.held() > 0 && listeners(&server) == 1);
        held.release().unwrap();
        proxy.deliver();
        let (token, _) = waiter.join().unwrap().detach().unwrap();
        let prefix = holder(&holder_of_both, NAME).unwrap().token_prefix;
        assert!(token.to_string().starts_with(&prefix));

        assert_eq!(kind(late.lock("other").acquire_within(ms(300))), ErrorKind::Timeout);
        let left = holder(&holder_of_both, NAME).expect("nobody gave it back");
        assert_eq!(left.token_prefix, prefix);
    });
}
