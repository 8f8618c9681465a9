//! What waiting costs, how it is ended, and what is left of it.

use std::fs;
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::queueing::{
    NAME, Queues, again_and_again, assert_all_keys_end, client, config, eventually_queued, in_line,
    is_look, judge, kind, listeners, now, on_each_queue, start_crowd, take_turn, turns_of,
};
use crate::stores::{LIMIT, STALL, Store, ms, open, secs};
use kit::process::cpu;
use kit::{Child, Server, child, eventually, unless_starved};
use leasehold::{Client, ErrorKind, Lease};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

on_each_queue!(
    everybody_in_line_is_asked_often_and_can_be_interrupted,
    closing_ends_the_waits_of_all_in_line,
    contention_leaks_no_descriptor,
    a_fork_while_threads_wait_is_told_to_the_child_and_disturbs_nobody,
);

pub(crate) const ROLES: kit::child::Roles =
    &[("contended", contended), ("forking_waiters", forking_waiters)];

fn taken(client: &Client) -> Lease {
    client.lock(NAME).try_acquire().unwrap().expect("the lock is free")
}

#[test]
fn there_is_one_wake_up_connection_a_client_and_none_without_contention() {
    let server = Server::start();
    let clients = [(); 3].map(|()| open(&server.url()));
    for client in &clients {
        for _ in 0..20 {
            client.lock(NAME).acquire().unwrap().release().unwrap();
            drop(client.lock("other").acquire().unwrap());
        }
    }
    assert_eq!(listeners(&server), 0);
    let held = taken(&clients[0]);
    // To find it taken is no waiting either.
    assert!(clients[1].lock(NAME).try_acquire().unwrap().is_none());
    assert_eq!(listeners(&server), 0);
    std::thread::scope(|scope| {
        let names = ["a", "b", NAME];
        let others: Vec<_> = names[..2].iter().map(|name| clients[0].lock(name)).collect();
        let others: Vec<_> = others.iter().map(|lock| lock.acquire().unwrap()).collect();
        let mut waiters = Vec::new();
        for client in &clients[1..] {
            for name in names.iter().cycle().take(30) {
                let lock = client.lock(name).wait(LIMIT);
                waiters.push(scope.spawn(move || lock.acquire().unwrap().release().unwrap()));
            }
        }
        eventually_queued(&server, 2);
        eventually(LIMIT, || listeners(&server) == 2);
        std::thread::sleep(ms(100));
        assert_eq!(listeners(&server), 2);
        drop((others, held));
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
    eventually_queued(&server, 0);
    assert_all_keys_end(&server);
}

#[test]
fn a_turn_that_is_given_back_at_once_costs_two_commands_and_no_claim() {
    unless_starved(STALL, || {
        let server = Server::start();
        let clients = [(); 8].map(|()| open(&server.url()));
        // The server learns the scripts.
        clients[0].lock("other").acquire().unwrap().release().unwrap();
        let held = taken(&clients[0]);
        std::thread::scope(|scope| {
            let mut watch = server.watch();
            let waiters: Vec<_> = clients[1..]
                .iter()
                .map(|client| in_line(scope, client.lock(NAME).wait(LIMIT), ms(0)))
                .collect();
            let joined = watch.client_commands();
            let joins = joined.iter().filter(|command| command.contains("\"join ")).count();
            assert_eq!(joins, waiters.len());
            held.release().unwrap();
            judge(waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect());
            // One for each release, that of the first holder included.
            let mut sent = watch.client_commands();
            sent.retain(|command| !is_look(command) && !command.starts_with("SCRIPT"));
            assert_eq!(sent.len(), clients.len(), "{sent:?}");
            assert!(sent.iter().all(|command| command.starts_with("EVALSHA")));
            assert!(sent.iter().all(|command| !command.contains("\"claim\"")));
        });
    });
}

#[test]
fn threads_that_come_again_while_nobody_else_waits_cost_a_look_and_no_more() {
    // A look that a busy machine answers too late is followed by a give and a take.
    unless_starved(STALL, || {
        for (threads, rounds) in [(2, 8), (3, 5)] {
            let server = Server::start();
            let lock = open(&server.url()).lock(NAME).wait(LIMIT);
            // The server learns the scripts.
            again_and_again(&lock, threads, |turns| turns < 2);
            let mut watch = server.watch();
            let turns = again_and_again(&lock, threads, |turns| turns < rounds).concat();
            let sent = watch.client_commands();
            let (looks, others): (Vec<_>, Vec<_>) = sent.into_iter().partition(|it| is_look(it));
            // One for those who are in line: all threads but the one whose turn ends.
            let most = (threads * rounds).div_ceil(threads - 1);
            assert!(!looks.is_empty() && looks.len() <= most, "{looks:?}");
            // The first thread takes it, another waits for that one at the server and claims it, and
            // two gives follow; the second one with a take.
            assert!(others.len() <= 7, "{others:?}");
            assert_eq!(turns.len(), threads * rounds);
            judge(turns);
            assert_all_keys_end(&server);
        }
    });
}

/// A minute of this is measured elsewhere; the limits are wide.
#[test]
fn a_thousand_who_wait_idly_cost_next_to_nothing_and_all_get_their_turn() {
    let server = Server::start();
    let held = taken(&open(&server.url()));
    let crowds: Vec<_> = (0..4).map(|_| start_crowd(&server, [250, 1, 0])).collect();
    for crowd in &crowds {
        assert_eq!(crowd.line(LIMIT), "ready");
    }
    eventually_queued(&server, 4);
    // Its threads get there one after the other.
    eventually(LIMIT, || crowds.iter().all(|crowd| cpu_in(crowd.pid(), ms(200)) <= ms(20)));
    let before: Vec<_> = crowds.iter().map(|crowd| cpu(crowd.pid())).collect();
    let (mut watch, start) = (server.watch(), Instant::now());
    std::thread::sleep(secs(3));
    let (sent, span) = (watch.client_commands(), start.elapsed().as_secs_f64());
    let used: Duration =
        crowds.iter().zip(before).map(|(crowd, before)| cpu(crowd.pid()) - before).sum();
    assert!((sent.len() as f64) < 20.0 * span, "{} in {span} s", sent.len());
    assert!(used.as_secs_f64() < 0.1 * span, "{used:?} in {span} s");
    held.release().unwrap();
    let turns = turns_of(crowds);
    assert_eq!(turns.len(), 1000);
    judge(turns);
    eventually_queued(&server, 0);
    assert_all_keys_end(&server);
}

fn cpu_in(pid: Pid, span: Duration) -> Duration {
    let before = cpu(pid);
    std::thread::sleep(span);
    cpu(pid) - before
}

/// The first of them listens to the wake-up connection, the others sleep.
fn everybody_in_line_is_asked_often_and_can_be_interrupted(fresh: fn() -> Store) {
    unless_starved(STALL, || {
        let server = fresh();
        let (holder, client) = (open(&server.url()), open(&server.url()));
        let held = taken(&holder);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let waiters: Vec<_> = (0..4)
                .map(|_| {
                    let lock = client.lock(NAME).wait(LIMIT);
                    let stop = &stop;
                    scope.spawn(move || {
                        let (mut last, mut longest, mut asked) = (now(), Duration::ZERO, 0);
                        let check = || {
                            longest = longest.max(now() - last);
                            last = now();
                            asked += 1;
                            stop.load(Ordering::Relaxed)
                        };
                        assert_eq!(kind(lock.acquire_unless(check)), ErrorKind::Interrupted);
                        (longest, asked, now())
                    })
                })
                .collect();
            std::thread::sleep(secs(1));
            let stopped = now();
            stop.store(true, Ordering::Relaxed);
            for waiter in waiters {
                let (longest, asked, ended) = waiter.join().unwrap();
                assert!(longest < ms(130), "{longest:?}");
                assert!(asked >= 8, "{asked}");
                assert!(ended - stopped < ms(150), "{:?}", ended - stopped);
            }
        });
        eventually_queued(&server, 0);
        held.release().unwrap();
        server.assert_all_ends();
    });
}

fn closing_ends_the_waits_of_all_in_line(fresh: fn() -> Store) {
    unless_starved(STALL, || {
        let server = fresh();
        let (holder, client) = (open(&server.url()), open(&server.url()));
        let held = taken(&holder);
        std::thread::scope(|scope| {
            let wait = || {
                let lock = client.lock(NAME).wait_forever();
                scope.spawn(move || (kind(lock.acquire()), now()))
            };
            let waiters: Vec<_> = (0..10).map(|_| wait()).collect();
            eventually_queued(&server, 1);
            std::thread::sleep(ms(100));
            let closed = now();
            client.close().unwrap();
            for waiter in waiters {
                let (kind, ended) = waiter.join().unwrap();
                assert_eq!(kind, ErrorKind::Closed);
                assert!(ended - closed < ms(200), "{:?}", ended - closed);
            }
        });
        eventually_queued(&server, 0);
        held.release().unwrap();
        if let Store::Redis(server) = &server {
            eventually(LIMIT, || listeners(server) == 0);
        }
        server.assert_all_ends();
    });
}

/// Contended rounds, and how many descriptors are open before and after them.
fn contended(args: &[String]) {
    let clients = [(); 3].map(|()| client(config(&args[0])));
    let round = || {
        std::thread::scope(|scope| {
            for client in clients.iter().cycle().take(9) {
                scope.spawn(|| take_turn(&client.lock(NAME).wait(LIMIT), ms(1)));
            }
        });
    };
    // All connections that are ever needed are made: as many as there are threads at once.
    for _ in 0..50 {
        round();
    }
    let open = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = open();
    for _ in 0..50 {
        round();
    }
    child::say(&format!("{before} {}", open()));
    child::hear();
}

fn contention_leaks_no_descriptor(fresh: fn() -> Store) {
    let server = fresh();
    let contended = Child::start("contended", &[&server.url()]);
    let said = contended.line(LIMIT * 3);
    let (before, after) = said.split_once(' ').unwrap();
    let [before, after]: [usize; 2] = [before, after].map(|text| text.parse().unwrap());
    // A connection of the pools, perhaps, for each thread that had not met the others before.
    assert!(after <= before + 6, "{before} and then {after}");
    if let Store::Redis(server) = &server {
        assert_eq!(listeners(server), 3);
    }
    eventually_queued(&server, 0);
    server.assert_all_ends();
}

/// Forks on one of the threads that wait: the one that listens.
#[allow(unsafe_code)]
fn forking_waiters(args: &[String]) {
    let client = client(config(&args[0]));
    let forked = Mutex::new(None);
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..3)
            .map(|index| {
                let lock = client.lock(NAME).wait(LIMIT);
                let forked = &forked;
                scope.spawn(move || {
                    let (mut asked, mut is_child) = (0, false);
                    let result = lock.acquire_unless(|| {
                        asked += 1;
                        if index == 0 && asked == 3 {
                            // SAFETY: the child calls into the library, which copes, and the
                            // allocator, which does so too; it ends by `_exit`.
                            match unsafe { fork() }.unwrap() {
                                ForkResult::Child => is_child = true,
                                ForkResult::Parent { child } => {
                                    *forked.lock().unwrap() = Some(child);
                                }
                            }
                        }
                        false
                    });
                    if is_child {
                        nix::unistd::alarm::set(30);
                        let told = result.is_err_and(|error| error.kind() == ErrorKind::Forked)
                            && kind(lock.acquire()) == ErrorKind::Forked;
                        // SAFETY: ends the process at once, without running anybody's handlers.
                        unsafe { nix::libc::_exit(i32::from(!told)) }
                    }
                    result.unwrap().release().unwrap();
                })
            })
            .collect();
        eventually(LIMIT, || forked.lock().unwrap().is_some());
        let child = forked.lock().unwrap().unwrap();
        let mut ended = WaitStatus::StillAlive;
        eventually(LIMIT, || {
            ended = waitpid(child, Some(WaitPidFlag::WNOHANG)).unwrap();
            ended != WaitStatus::StillAlive
        });
        child::say(&format!("child ended well: {}", ended == WaitStatus::Exited(child, 0)));
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        child::say("all had their turns");
    });
    std::io::stdout().flush().unwrap();
}

fn a_fork_while_threads_wait_is_told_to_the_child_and_disturbs_nobody(fresh: fn() -> Store) {
    let server = fresh();
    let held = taken(&open(&server.url()));
    let parent = Child::start("forking_waiters", &[&server.url()]);
    assert_eq!(parent.line(LIMIT), "child ended well: true");
    held.release().unwrap();
    assert_eq!(parent.line(LIMIT), "all had their turns");
    eventually_queued(&server, 0);
    server.assert_all_ends();
}
