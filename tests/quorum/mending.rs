//! Leases that were won by a bare majority, as in a crowd, or that a node has lost: they are soon on
//! every node that is there, so that one node more may fail.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::stores::{LIMIT, Quorum, STALL, ms, secs};
use kit::{Mode, Offset, Server, eventually, unless_starved};
use leasehold::{Client, Lease};
use redis::Value;

const NAME: &str = "n";
/// By when a lease is on every node that is there.
const SOON: Duration = secs(1);

fn has(node: &Server, lease: &Lease) -> bool {
    let token: Option<String> = redis::from_redis_value(node.cmd(&["GET", NAME])).unwrap();
    token.is_some_and(|token| token == lease.token().to_string())
}

/// The nodes that have a lease, of those that run.
fn standing(quorum: &Quorum, lease: &Lease) -> Vec<usize> {
    let nodes = quorum.nodes.iter().enumerate();
    nodes.filter(|(_, node)| node.is_running() && has(node, lease)).map(|(at, _)| at).collect()
}

/// Those who wait for one node no longer than this.
fn crowd(quorum: &Quorum) -> Vec<Client> {
    let client = || Client::with_config(quorum.config().io_timeout(secs(3))).unwrap();
    let clients: Vec<_> = (0..2).map(|_| client()).collect();
    clients.iter().for_each(|client| quorum.warm_up(client));
    clients
}

/// Another has the lock on this node, and nowhere else, for a minute.
fn rival(node: &Server) {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let token = format!("{:032x}", LAST.fetch_add(1, Ordering::Relaxed));
    node.cmd(&["SET", NAME, &token, "PX", "60000"]);
}

/// Has it on two nodes of three, since a rival has kept the third for longer than a call waits for him,
/// and is gone only now; and on which two.
fn won_barely(
    quorum: &Quorum,
    clients: &[Client],
    ttl: Duration,
    renew: bool,
) -> (Lease, Vec<usize>) {
    static TURN: AtomicU64 = AtomicU64::new(0);
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        let third = TURN.fetch_add(1, Ordering::Relaxed) as usize % 3;
        rival(&quorum.nodes[third]);
        let won = clients[0].lock(NAME).ttl(ttl).renew(renew).try_acquire();
        quorum.nodes[third].cmd(&["DEL", NAME]);
        let Ok(Some(lease)) = won else { continue };
        let on = standing(quorum, &lease);
        if on.len() == 2 && lease.is_valid() {
            return (lease, on);
        }
        lease.release().unwrap();
        quorum.eventually_free(NAME);
    }
    panic!("nobody wins barely");
}

/// What a call returns that has won on two nodes of three while a rival had the third, who leaves only
/// when the call is known to wait for that node.
fn won_against(quorum: &mut Quorum, client: &Client, third: usize) -> Lease {
    let (rivals, others) = (&quorum.nodes[third], [(third + 1) % 3, (third + 2) % 3]);
    rival(rivals);
    let asked = rivals.calls("evalsha");
    // The others answer later: whether it is waited for does not hang on who is faster today.
    others.iter().for_each(|at| quorum.proxies[*at].set(Mode::HoldRequests));
    let lease = std::thread::scope(|scope| {
        let call = scope.spawn(|| client.lock(NAME).ttl(secs(60)).try_acquire().unwrap());
        let rivals_was_asked = |times| rivals.calls("evalsha") >= asked + times;
        eventually(LIMIT, || rivals_was_asked(1));
        for at in others {
            quorum.proxies[at].set(Mode::Pass);
            quorum.proxies[at].deliver();
        }
        // It was told to store the lock.
        eventually(LIMIT, || rivals_was_asked(2) || call.is_finished());
        assert!(!call.is_finished(), "it does not wait for node {third}");
        rivals.cmd(&["DEL", NAME]);
        call.join().unwrap().expect("it had the others")
    });
    assert_eq!(standing(quorum, &lease), [0, 1, 2]);
    lease
}

/// For as long as a test may take, whatever the machine does.
fn patient(quorum: &Quorum) -> Client {
    let client = Client::with_config(quorum.config().io_timeout(secs(200))).unwrap();
    quorum.warm_up(&client);
    client
}

#[test]
fn c1_a_clock_that_jumps_just_after_a_contended_win_makes_no_second_holder() {
    let servers = Server::builder().clocked();
    let mut quorum = Quorum::builder(3).servers(servers).with_proxies().start();
    let (client, other) = (patient(&quorum), patient(&quorum));
    for round in 0..6 {
        let (third, jumps) = (round % 3, (round + 1 + round / 3) % 3);
        let lease = won_against(&mut quorum, &client, third);
        quorum.nodes[jumps].shift_clock(Offset::Ahead(secs(3600)));
        let second = other.lock(NAME).try_acquire().unwrap();
        assert!(second.is_none() && lease.is_valid(), "round {round}: two hold the lock");
        quorum.nodes[jumps].shift_clock(Offset::Ahead(Duration::ZERO));
        lease.release().unwrap();
        quorum.eventually_free(NAME);
    }
}

#[test]
fn a_node_that_dies_just_after_a_contended_win_does_not_take_the_lease_with_it() {
    for third in 0..3 {
        let mut quorum = Quorum::builder(3).with_proxies().start();
        let client = patient(&quorum);
        let lease = won_against(&mut quorum, &client, third);
        quorum.nodes[(third + 1) % 3].kill();
        lease.extend().unwrap();
        assert!(lease.is_valid());
        lease.release().unwrap();
    }
}

fn is_soon_everywhere(quorum: &Quorum, lease: &Lease) {
    let start = Instant::now();
    let running = quorum.running().count();
    while standing(quorum, lease).len() < running {
        assert!(start.elapsed() < SOON, "it is on {:?} still", standing(quorum, lease));
        std::thread::sleep(ms(5));
    }
}

/// However long a busy machine takes. Says what the nodes have where that is another thing.
fn is_everywhere_in_the_end(quorum: &Quorum, lease: &Lease) {
    let start = Instant::now();
    while standing(quorum, lease).len() < quorum.nodes.len() {
        let found = |node: &Server| {
            let asked: [&[&str]; 3] = [&["GET", NAME], &["PTTL", NAME], &["TIME"]];
            asked.map(|words| node.cmd(words))
        };
        let nodes = || quorum.nodes.iter().map(found).collect::<Vec<_>>();
        assert!(start.elapsed() < LIMIT, "{} is not on all of {:?}", lease.token(), nodes());
        std::thread::sleep(ms(5));
    }
}

#[test]
fn a_lease_that_was_won_in_a_crowd_is_soon_on_all_nodes() {
    unless_starved(STALL, || {
        let quorum = Quorum::start(3);
        let clients = crowd(&quorum);
        for round in 0..12 {
            let (lease, _) = won_barely(&quorum, &clients, secs(30), round % 2 == 0);
            is_soon_everywhere(&quorum, &lease);
            let fence = lease.fence();
            lease.release().unwrap();
            // By a release or what is owed, not by its ttl.
            quorum.eventually_free(NAME);
            let next = clients[0].lock(NAME).wait(LIMIT).acquire().unwrap();
            assert!(next.fence() > fence);
            next.release().unwrap();
            quorum.eventually_free(NAME);
        }
    });
}

#[test]
fn a_node_that_was_slow_once_is_given_the_lease_though_no_caller_asks_it_again() {
    let quorum = Quorum::start(3);
    let client = &crowd(&quorum)[0];
    let slow = &quorum.nodes[2];
    rival(slow);
    // Its next renewal would notice it.
    let lease = client.lock(NAME).ttl(secs(60)).renew(false).try_acquire().unwrap().unwrap();
    slow.stop();
    std::thread::sleep(ms(800));
    slow.cont();
    slow.cmd(&["DEL", NAME]);
    is_everywhere_in_the_end(&quorum, &lease);
}

#[test]
fn c1_a_clock_that_jumps_makes_no_second_holder_of_a_lease_won_in_a_crowd() {
    let quorum = Quorum::builder(3).servers(Server::builder().clocked()).start();
    let clients = crowd(&quorum);
    for round in 0..8 {
        let (lease, on) = won_barely(&quorum, &clients, secs(30), round % 2 == 0);
        is_everywhere_in_the_end(&quorum, &lease);
        quorum.nodes[on[0]].shift_clock(Offset::Ahead(secs(3600)));
        let other = quorum.client();
        let start = Instant::now();
        while start.elapsed() < ms(300) {
            let second = other.lock(NAME).try_acquire().unwrap();
            assert!(second.is_none() || !lease.is_valid(), "round {round}: two hold the lock");
        }
        // What the other one has there would stand for an hour once the clock is right again.
        let jumped = &quorum.nodes[on[0]];
        let is_left = || has(jumped, &lease) || jumped.cmd(&["EXISTS", NAME]) == Value::Int(0);
        eventually(LIMIT, is_left);
        jumped.shift_clock(Offset::Ahead(Duration::ZERO));
        assert!(lease.is_valid());
        lease.release().unwrap();
        quorum.eventually_free(NAME);
    }
}

#[test]
fn a_node_that_dies_does_not_take_a_lease_won_in_a_crowd_with_it() {
    for round in 0..4 {
        unless_starved(STALL, || {
            let mut quorum = Quorum::start(3);
            let clients = crowd(&quorum);
            let (lease, on) = won_barely(&quorum, &clients, secs(2), true);
            is_everywhere_in_the_end(&quorum, &lease);
            quorum.nodes[on[round % 2]].kill();
            std::thread::sleep(secs(3));
            assert!(lease.is_valid(), "round {round}");
            lease.extend().unwrap();
            lease.release().unwrap();
        });
    }
}

#[test]
fn an_attached_lease_is_soon_on_a_node_that_missed_it() {
    unless_starved(STALL, || {
        let quorum = Quorum::start(3);
        let client = quorum.client();
        quorum.warm_up(&client);
        for round in 0..6 {
            let taken = client.lock(NAME).wait(LIMIT).acquire().unwrap();
            eventually(LIMIT, || standing(&quorum, &taken).len() == 3);
            let (token, fence) = taken.detach().unwrap();
            let handed_on = |node: &Server| {
                node.cmd(&["GET", NAME]) != Value::BulkString(token.to_string().into_bytes())
            };
            eventually(LIMIT, || quorum.nodes.iter().all(handed_on));
            quorum.nodes[round % 3].cmd(&["DEL", NAME]);
            let lease = client.lock(NAME).renew(false).attach(token, fence).unwrap();
            lease.extend().unwrap();
            is_soon_everywhere(&quorum, &lease);
            lease.release().unwrap();
            quorum.eventually_free(NAME);
        }
    });
}

/// The nodes are asked and told in the background, at the same time.
#[test]
fn a_release_amid_it_leaves_nothing() {
    let quorum = Quorum::start(3);
    let clients = crowd(&quorum);
    for round in 0..24 {
        let (lease, _) = won_barely(&quorum, &clients, secs(60), true);
        std::thread::sleep(ms(40 + 4 * round));
        lease.release().unwrap();
        quorum.eventually_free(NAME);
        // What is stored after that is given back with what is settled next.
        std::thread::sleep(ms(200));
        assert_eq!(quorum.taken_on(NAME), 0, "round {round}");
    }
}

#[test]
fn a_lease_that_is_detached_or_left_amid_it_stays_under_its_token_on_no_node() {
    let quorum = Quorum::start(3);
    let clients = crowd(&quorum);
    for round in 0..24 {
        let (lease, _) = won_barely(&quorum, &clients, secs(60), true);
        std::thread::sleep(ms(40 + 2 * (round / 2)));
        let old = Value::BulkString(lease.token().to_string().into_bytes());
        if round % 2 == 0 {
            let (token, fence) = lease.detach().unwrap();
            let is_passed_on = |node: &Server| node.cmd(&["GET", NAME]) != old;
            eventually(LIMIT, || quorum.nodes.iter().all(is_passed_on));
            std::thread::sleep(ms(200));
            assert!(quorum.nodes.iter().all(is_passed_on), "round {round}");
            clients[0].lock(NAME).attach(token, fence).unwrap().release().unwrap();
        } else {
            lease.let_expire_in(ms(100)).unwrap();
        }
        quorum.eventually_free(NAME);
    }
}

/// Each server is restarted, empty, while one and the same lease is held.
#[test]
fn a_lease_outlasts_the_restart_of_all_nodes_one_by_one() {
    let mut quorum = Quorum::builder(3).max_ttl(secs(2)).start();
    let client = quorum.client();
    quorum.warm_up(&client);
    let lease = client.lock(NAME).ttl(secs(2)).wait(LIMIT).acquire().unwrap();
    for node in 0..3 {
        is_everywhere_in_the_end(&quorum, &lease);
        quorum.nodes[node].restart_empty();
        eventually(LIMIT, || has(&quorum.nodes[node], &lease));
        assert!(lease.is_valid());
    }
    let fence = lease.fence();
    // None of them knows of it but by what the holder told them since.
    for node in &quorum.nodes {
        let side: String =
            redis::from_redis_value(node.cmd(&["GET", &format!("leasehold:{{{NAME}}}")])).unwrap();
        let last: u64 = side.split(' ').nth(1).unwrap().parse().unwrap();
        assert!(last >= fence, "{side}");
    }
    lease.extend().unwrap();
    lease.release().unwrap();
    quorum.eventually_free(NAME);
    let next = client.lock(NAME).wait(LIMIT).acquire().unwrap();
    assert!(next.fence() > fence);
}

/// A client that wins alone has it everywhere, and asks for nothing more.
#[test]
fn a_lease_on_all_nodes_costs_nothing_more() {
    unless_starved(STALL, || {
        let quorum = Quorum::start(3);
        let client = quorum.client();
        quorum.warm_up(&client);
        std::thread::sleep(ms(300));
        let before = quorum.scripts();
        let lease = client.lock(NAME).acquire().unwrap();
        std::thread::sleep(secs(2));
        lease.release().unwrap();
        eventually(LIMIT, || quorum.scripts() == before + 6);
        std::thread::sleep(ms(500));
        assert_eq!(quorum.scripts(), before + 6);
        assert_eq!(quorum.nodes[0].cmd(&["EXISTS", NAME]), Value::Int(0));
    });
}
