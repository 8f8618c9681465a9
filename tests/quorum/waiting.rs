//! Waiting for a lock on a quorum: the holder that gives it up tells, nobody hands over, and votes
//! that are split come to an end.

use std::time::Duration;

use crate::queueing::{ASKED_IN_LINE, NAME, in_line, judge, now, take_turn};
use crate::stores::{LIMIT, Quorum, STALL, ms, open, secs};
use kit::{Child, Hold, Mode, Server, Watch, child, eventually, unless_starved};
use leasehold::{Client, ErrorKind, Lease};

pub(crate) const ROLES: kit::child::Roles = &[("waiter", waiter)];

/// Waits for the lock, and says so when it does.
fn waiter(args: &[String]) {
    let client = open(&args[0]);
    let mut asked = 0;
    let waits = || {
        asked += 1;
        if asked == ASKED_IN_LINE {
            child::say("waits");
        }
        false
    };
    let lease = client.lock(NAME).wait(secs(100)).acquire_unless(waits).unwrap();
    child::say("has");
    child::hear();
    drop(lease);
}

fn taken(client: &Client) -> Lease {
    client.lock(NAME).try_acquire().unwrap().expect("the lock is free")
}

/// So many clients, each with its connections made.
fn clients(quorum: &Quorum, count: usize) -> Vec<Client> {
    let client = |_| {
        let client = quorum.client();
        client.lock("warm-up").wait(LIMIT).acquire().unwrap().release().unwrap();
        client
    };
    (0..count).map(client).collect()
}

/// Scripts that clients have sent to each node since the last call.
fn sent(watches: &mut [Watch<'_>]) -> Vec<usize> {
    let count = |watch: &mut Watch<'_>| {
        watch.client_commands().iter().filter(|command| command.starts_with("EVALSHA")).count()
    };
    watches.iter_mut().map(count).collect()
}

#[test]
fn c1_c2_those_who_ask_at_once_all_get_their_turns() {
    let quorum = Quorum::start(5);
    let clients = clients(&quorum, 8);
    let begun = now();
    let turns: Vec<Hold> = std::thread::scope(|scope| {
        let crowd: Vec<_> = clients
            .iter()
            .map(|client| {
                let lock = client.lock(NAME).wait(secs(100));
                let turn = move |_| take_turn(&lock, Duration::ZERO);
                scope.spawn(move || (0..50).map(turn).collect::<Vec<_>>())
            })
            .collect();
        crowd.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let took = now() - begun;
    let attempts: u64 = clients.iter().map(|client| client.counters().attempts).sum();
    println!("400 turns in {took:?}, by {attempts} attempts");
    assert_eq!(turns.len(), 400);
    judge(turns);
    assert!(took < secs(60), "{took:?}");
    quorum.eventually_free(NAME);
}

/// Each try is one attempt: of those who come together at most one wins, and soon one does.
#[test]
fn one_of_those_who_only_try_wins_soon() {
    let quorum = Quorum::start(5);
    let clients = clients(&quorum, 4);
    for _ in 0..20 {
        let mut rounds = 0;
        loop {
            rounds += 1;
            let won: Vec<_> = std::thread::scope(|scope| {
                let tries: Vec<_> = clients
                    .iter()
                    .map(|client| scope.spawn(|| client.lock(NAME).try_acquire().unwrap()))
                    .collect();
                tries.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
            });
            assert!(won.len() <= 1, "{won:?}");
            if let Some(lease) = won.into_iter().next() {
                lease.release().unwrap();
                break;
            }
            assert!(rounds < 100, "nobody wins");
        }
    }
}

#[test]
fn a_lock_that_is_held_and_waited_for_costs_next_to_nothing() {
    unless_starved(STALL, || {
        let quorum = Quorum::start(5);
        let clients = clients(&quorum, 9);
        let held = taken(&clients[0]);
        std::thread::scope(|scope| {
            let waiters: Vec<_> = clients[1..]
                .iter()
                .map(|client| in_line(scope, client.lock(NAME).wait(secs(100)), ms(0)))
                .collect();
            eventually(LIMIT, || quorum.waiters(NAME) == 8);
            let mut watches: Vec<_> = quorum.nodes.iter().map(Server::watch).collect();
            // A waiter that was about to ask has asked.
            eventually(LIMIT, || {
                std::thread::sleep(ms(100));
                sent(&mut watches).iter().sum::<usize>() <= 8
            });
            std::thread::sleep(secs(2));
            let sent = sent(&mut watches);
            // Each waiter looks once a second. Besides, at the most a renewal or so.
            assert!(sent.iter().all(|count| *count <= 8 * 3 + 4), "{sent:?}");
            held.release().unwrap();
            judge(waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect());
        });
        quorum.eventually_free(NAME);
    });
}

#[test]
fn a_release_wakes_the_one_that_waits() {
    unless_starved(STALL, || {
        let quorum = Quorum::start(5);
        let clients = clients(&quorum, 2);
        let held = taken(&clients[0]);
        std::thread::scope(|scope| {
            let next = in_line(scope, clients[1].lock(NAME).wait(secs(100)), ms(0));
            eventually(LIMIT, || quorum.waited_for_on(NAME) >= 3);
            std::thread::sleep(ms(300));
            let released = now();
            held.release().unwrap();
            let turn = next.join().unwrap();
            assert!(turn.from - released < ms(150), "{:?}", turn.from - released);
        });
        quorum.eventually_free(NAME);
        assert_eq!(quorum.waited_for_on(NAME), 0);
    });
}

#[test]
fn c10_one_that_died_while_it_waited_does_not_hold_up_the_next() {
    unless_starved(STALL, || {
        let quorum = Quorum::start(3);
        let clients = clients(&quorum, 2);
        let held = taken(&clients[0]);
        let mut dead: Vec<_> = (0..2).map(|_| Child::start("waiter", &[&quorum.url()])).collect();
        dead.iter().for_each(|child| assert_eq!(child.line(LIMIT), "waits"));
        std::thread::scope(|scope| {
            let next = in_line(scope, clients[1].lock(NAME).wait(secs(100)), ms(0));
            eventually(LIMIT, || quorum.waiters(NAME) == 3);
            dead.iter_mut().for_each(Child::kill);
            // Until the servers know that nobody listens.
            std::thread::sleep(ms(100));
            let released = now();
            held.release().unwrap();
            let turn = next.join().unwrap();
            assert!(turn.from - released < ms(200), "{:?}", turn.from - released);
        });
    });
}

/// One that stands still is told, and does nothing: the next one is told too.
#[test]
fn c10_one_that_stands_still_does_not_hold_up_the_next() {
    unless_starved(STALL, || {
        let quorum = Quorum::start(3);
        let clients = clients(&quorum, 2);
        let held = taken(&clients[0]);
        let mut stopped = Child::start("waiter", &[&quorum.url()]);
        assert_eq!(stopped.line(LIMIT), "waits");
        std::thread::scope(|scope| {
            let next = in_line(scope, clients[1].lock(NAME).wait(secs(100)), ms(0));
            eventually(LIMIT, || quorum.waiters(NAME) == 2);
            stopped.stop();
            let released = now();
            held.release().unwrap();
            let turn = next.join().unwrap();
            assert!(turn.from - released < ms(200), "{:?}", turn.from - released);
        });
        stopped.cont();
        assert_eq!(stopped.line(LIMIT), "has");
        stopped.tell("");
        assert!(stopped.wait(LIMIT).success());
    });
}

/// A node tells two, and these do nothing. The next one sees for itself that most nodes are free.
#[test]
fn c10_three_that_stand_still_hold_the_next_up_for_a_second() {
    unless_starved(STALL, || {
        let quorum = Quorum::start(3);
        let clients = clients(&quorum, 2);
        let held = taken(&clients[0]);
        let stopped: Vec<_> = (0..3).map(|_| Child::start("waiter", &[&quorum.url()])).collect();
        stopped.iter().for_each(|child| assert_eq!(child.line(LIMIT), "waits"));
        std::thread::scope(|scope| {
            let next = in_line(scope, clients[1].lock(NAME).wait(secs(100)), ms(0));
            eventually(LIMIT, || quorum.waiters(NAME) == 4);
            stopped.iter().for_each(Child::stop);
            let released = now();
            held.release().unwrap();
            let turn = next.join().unwrap();
            println!("{:?}", turn.from - released);
            assert!(turn.from - released < ms(1200), "{:?}", turn.from - released);
        });
    });
}

#[test]
fn a_waiter_whose_wake_up_connections_are_cut_still_gets_its_turn() {
    unless_starved(STALL, || {
        let quorum = Quorum::start(3);
        let clients = clients(&quorum, 2);
        let held = taken(&clients[0]);
        std::thread::scope(|scope| {
            let next = in_line(scope, clients[1].lock(NAME).wait(secs(100)), ms(0));
            eventually(LIMIT, || quorum.waited_for_on(NAME) >= 2);
            for _ in 0..3 {
                for node in &quorum.nodes {
                    node.cmd(&["CLIENT", "KILL", "TYPE", "pubsub"]);
                }
                std::thread::sleep(ms(50));
            }
            let released = now();
            held.release().unwrap();
            let turn = next.join().unwrap();
            assert!(turn.from - released < secs(2), "{:?}", turn.from - released);
        });
    });
}

#[test]
fn a_waiter_hears_of_a_release_although_a_minority_is_down() {
    for kill in [true, false] {
        unless_starved(STALL, || {
            let mut quorum = Quorum::start(5);
            let clients: Vec<_> = (0..2).map(|_| quorum.brisk_client()).collect();
            let held = taken(&clients[0]);
            std::thread::scope(|scope| {
                let next = in_line(scope, clients[1].lock(NAME).wait(secs(100)), ms(0));
                eventually(LIMIT, || quorum.waited_for_on(NAME) >= 3);
                for node in [1, 2] {
                    if kill { quorum.nodes[node].kill() } else { quorum.nodes[node].stop() }
                }
                std::thread::sleep(ms(300));
                let released = now();
                held.release().unwrap();
                let turn = next.join().unwrap();
                println!("killed: {kill}, {:?} after the release", turn.from - released);
                assert!(turn.from - released < secs(2), "{:?}", turn.from - released);
            });
        });
    }
}

/// One who was granted the lock by most nodes, and did not hear of it in time, does not have it.
/// Others cannot tell, and count on being told.
#[test]
fn c10_a_waiter_hears_of_it_when_an_attempt_that_had_most_nodes_is_given_up() {
    let mut quorum = Quorum::builder(3).with_proxies().start();
    let near: Vec<_> = quorum.nodes.iter().map(Server::url).collect();
    let near = open(&near.join(","));
    let far = quorum.config().io_timeout(secs(10));
    let far = Client::with_config(far).unwrap();
    for client in [&near, &far] {
        client.lock("warm-up").wait(LIMIT).acquire().unwrap().release().unwrap();
    }
    quorum.eventually_free("warm-up");
    // A reply to this that is not read yet would be swallowed, and its connection given up.
    std::thread::sleep(ms(500));
    quorum.nodes[0].kill();
    quorum.proxies[2].set(Mode::SwallowReplies);
    std::thread::scope(|scope| {
        let attempt =
            scope.spawn(|| far.lock(NAME).ttl(secs(60)).io_timeout(ms(1500)).try_acquire());
        eventually(LIMIT, || quorum.taken_on(NAME) == 2);
        let next = in_line(scope, near.lock(NAME).wait(secs(100)), ms(0));
        let failed = attempt.join().unwrap().unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::NoQuorum);
        let over = now();
        let turn = next.join().unwrap();
        // By the ttl, or when it looks for itself, it would be much later.
        assert!(turn.from < over + secs(10), "{:?}", turn.from - over);
    });
}

#[test]
fn threads_of_one_client_wait_in_one_place() {
    let quorum = Quorum::start(3);
    let clients = clients(&quorum, 2);
    let held = taken(&clients[0]);
    std::thread::scope(|scope| {
        let lock = || clients[1].lock(NAME).wait(secs(100));
        let waiters: Vec<_> = (0..20).map(|_| in_line(scope, lock(), ms(0))).collect();
        assert_eq!(quorum.waiters(NAME), 1);
        held.release().unwrap();
        judge(waiters.into_iter().map(|waiter| waiter.join().unwrap()).collect());
    });
    quorum.eventually_free(NAME);
}

/// It may have counted on that one, where another does not know of it.
#[test]
fn a_waiter_asks_again_when_one_of_those_that_would_tell_it_is_gone() {
    unless_starved(STALL, || {
        let quorum = Quorum::start(3);
        let clients = clients(&quorum, 2);
        let held = taken(&clients[0]);
        std::thread::scope(|scope| {
            let next = in_line(scope, clients[1].lock(NAME).wait(secs(100)), ms(0));
            eventually(LIMIT, || quorum.waited_for_on(NAME) == 3);
            quorum.nodes[2].cmd(&["DEL", &format!("leasehold:queue:{{{NAME}}}")]);
            assert_eq!(quorum.waited_for_on(NAME), 2);
            quorum.nodes[0].cmd(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            eventually(secs(5), || quorum.waited_for_on(NAME) == 3);
            held.release().unwrap();
            judge(vec![next.join().unwrap()]);
        });
    });
}

#[test]
fn c13_nodes_that_forbid_to_listen_are_done_without_as_long_as_most_allow_it() {
    unless_starved(STALL, || {
        let quorum = Quorum::start(3);
        let clients = clients(&quorum, 2);
        let wait = |tells: bool| {
            let (held, client) = (taken(&clients[0]), quorum.client());
            std::thread::scope(|scope| {
                let wait = || take_turn(&client.lock(NAME).wait(secs(100)), ms(0));
                let next = scope.spawn(wait);
                if tells {
                    eventually(LIMIT, || quorum.waited_for_on(NAME) == 2);
                } else {
                    eventually(LIMIT, || client.counters().busy >= 10);
                    assert_eq!(quorum.waited_for_on(NAME), 0);
                }
                held.release().unwrap();
                judge(vec![next.join().unwrap()]);
            });
            quorum.eventually_free(NAME);
        };
        let forbid = |node: &Server| drop(node.cmd(&["ACL", "SETUSER", "default", "-subscribe"]));
        forbid(&quorum.nodes[0]);
        wait(true);
        forbid(&quorum.nodes[1]);
        wait(false);
    });
}

/// Other libraries tell nobody when they give up a lock.
#[test]
fn a_lock_that_another_library_has_is_asked_for_again_and_again() {
    let quorum = Quorum::start(3);
    let client = &clients(&quorum, 1)[0];
    for node in &quorum.nodes {
        node.cmd(&["SET", NAME, "another's", "PX", "100000"]);
    }
    std::thread::scope(|scope| {
        let next = scope.spawn(|| take_turn(&client.lock(NAME).wait(secs(100)), ms(0)));
        eventually(LIMIT, || client.counters().busy >= 2);
        for node in &quorum.nodes {
            node.cmd(&["DEL", NAME]);
        }
        eventually(LIMIT, || next.is_finished());
        judge(vec![next.join().unwrap()]);
    });
}

#[test]
fn a_waiter_keeps_its_place_when_it_asks_again() {
    let quorum = Quorum::start(3);
    let clients = clients(&quorum, 3);
    let held = taken(&clients[0]);
    std::thread::scope(|scope| {
        let lock = |client: usize| clients[client].lock(NAME).wait(secs(100));
        let first = in_line(scope, lock(1), ms(0));
        eventually(LIMIT, || quorum.waited_for_on(NAME) >= 2);
        let second = in_line(scope, lock(2), ms(0));
        let both = || quorum.nodes.iter().filter(|node| order(node).len() == 4).collect::<Vec<_>>();
        eventually(LIMIT, || both().len() >= 2);
        let (one, other) = (both()[0], both()[1]);
        let asked = || [1, 2].map(|client: usize| clients[client].counters().busy);
        let (before, until) = (order(other), asked().map(|busy| busy + 1));
        one.cmd(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        eventually(LIMIT, || asked().iter().zip(until).all(|(asked, until)| *asked >= until));
        assert_eq!(order(other), before);
        held.release().unwrap();
        judge([first, second].into_iter().map(|turn| turn.join().unwrap()).collect());
    });
}

/// Who stands in a node's queue, the first one first, each followed by its ticket.
fn order(node: &Server) -> Vec<String> {
    let queue = format!("leasehold:queue:{{{NAME}}}");
    redis::from_redis_value(node.cmd(&["ZRANGE", &queue, "0", "-1", "WITHSCORES"])).unwrap()
}
