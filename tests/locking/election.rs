//! One leader among candidates: who is elected, what its work is told, and what becomes of it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::stores::{LIMIT, Store, eventually_free, holder, ms, on_each_store, open, secs};
use kit::Link;
use kit::{Server, eventually};
use leasehold::{
    Break, Client, Election, ElectionState, Error, ErrorKind, EventKind, Leadership, LossReason,
    TermEnd,
};

on_each_store!(
    c1_c2_a_standby_is_elected_when_the_leader_resigns,
    c2_c14_work_that_ends_gives_the_leadership_up_in_each_way,
    c9_a_leader_whose_lock_is_broken_is_told_and_stands_again,
    c14_a_candidate_that_resigns_as_it_is_told_of_its_election_hears_of_the_end_after_that,
    c14_a_stopped_election_ends_the_wait_and_the_work,
    c13_what_can_never_be_elected_is_refused,
);

fn next<T>(told: &Receiver<T>) -> T {
    told.recv_timeout(LIMIT).expect("it happens")
}

/// A test that fails does not wait for its candidates.
struct Stops<'a, const COUNT: usize>([&'a Election; COUNT]);

impl<const COUNT: usize> Drop for Stops<'_, COUNT> {
    fn drop(&mut self) {
        self.0.iter().for_each(|election| election.stop());
    }
}

/// Leads until it is told to stop, and says so.
fn lead(election: &Election, said: &Sender<u64>) -> Result<(), Error> {
    election.run_as_leader(|term| {
        said.send(term.fence()).unwrap();
        while !term.ended_within(LIMIT) {}
        Ok(())
    })
}

fn c1_c2_a_standby_is_elected_when_the_leader_resigns(store: &Store) {
    let clients = [store.client(), store.client()];
    let [one, two] = clients.each_ref().map(|client| client.election("n"));
    assert_eq!((one.state(), one.fence()), (ElectionState::Idle, None));
    assert!(one.leader().unwrap().is_none());
    let ((one_said, one_leads), (two_said, two_leads)) = (channel(), channel());
    thread::scope(|scope| {
        let _stops = Stops([&one, &two]);
        let runs = scope.spawn(|| lead(&one, &one_said));
        let first = next(&one_leads);
        let waits = scope.spawn(|| lead(&two, &two_said));
        eventually(LIMIT, || two.state() == ElectionState::Standby);
        assert!(one.is_leader() && one.is_healthy() && two.is_healthy() && !two.is_leader());
        assert_eq!((one.fence(), two.fence()), (Some(first), None));
        for election in [&one, &two] {
            assert_eq!(election.leader().unwrap().unwrap().fence, Some(first));
        }
        // The one that resigns rests, and the other one is elected.
        one.resign();
        let second = next(&two_leads);
        assert!(second > first && !one.is_leader() && two.is_leader());
        assert_eq!(one.leader().unwrap().unwrap().fence, Some(second));
        two.stop();
        waits.join().unwrap().unwrap();
        assert!(next(&one_leads) > second);
        one.stop();
        runs.join().unwrap().unwrap();
    });
    assert!(one.is_stopped() && one.state() == ElectionState::Idle);
    eventually_free(&clients[0], "n");
}

fn c2_c14_work_that_ends_gives_the_leadership_up_in_each_way(store: &Store) {
    let client = store.client();
    let election = client.election("n");
    election.run_as_leader(|_| Ok::<(), Error>(())).unwrap();
    eventually_free(&client, "n");

    #[derive(Debug, PartialEq)]
    struct Own(&'static str);
    impl From<Error> for Own {
        fn from(error: Error) -> Own {
            panic!("{error}")
        }
    }
    assert_eq!(election.run_as_leader(|_| Err(Own("it raised"))), Err(Own("it raised")));
    eventually_free(&client, "n");

    let panics = || election.run_as_leader(|_| -> Result<(), Error> { panic!("on purpose") });
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    eventually_free(&client, "n");
    assert_eq!(election.state(), ElectionState::Idle);

    let (again, mut fences) = (client.election("n").stand_again(true), Vec::new());
    again
        .run_as_leader(|term| {
            fences.push(term.fence());
            if fences.len() == 2 {
                again.stop();
                assert_eq!(term.end(), Some(TermEnd::Resigned));
            }
            Ok::<(), Error>(())
        })
        .unwrap();
    assert!(fences.len() == 2 && fences[0] < fences[1]);

    let term = election.stand().unwrap();
    assert!(term.is_leader() && !term.remaining().is_zero() && term.loss().is_none());
    assert_eq!(election.fence(), Some(term.fence()));
    // Who leads already would wait for itself.
    assert_eq!(election.stand().unwrap_err().kind(), ErrorKind::WouldDeadlock);
    assert_eq!(client.election("n").stand_within(ms(50)).unwrap_err().kind(), ErrorKind::Timeout);
    term.resign().unwrap();
    drop(client.election("n").stand().unwrap());
    eventually_free(&client, "n");
}

fn c9_a_leader_whose_lock_is_broken_is_told_and_stands_again(store: &Store) {
    let (sender, changes) = channel();
    let client = store.client();
    let election =
        client.election("n").ttl(secs(6)).on_change(move |change| sender.send(change).unwrap());
    let (fences, told) = (AtomicU32::new(0), channel());
    thread::scope(|scope| {
        let _stops = Stops([&election]);
        let runs = scope.spawn(|| {
            election.run_as_leader(|term| {
                fences.fetch_add(1, Ordering::Relaxed);
                eventually(LIMIT, || term.ended_within(secs(1)));
                // Why it has ended is known a moment later than that it has.
                eventually(LIMIT, || term.loss().is_some() || election.is_stopped());
                told.0.send((term.fence(), term.end(), term.loss())).unwrap();
                Ok::<(), Error>(())
            })
        });
        let Leadership::Elected { fence } = next(&changes) else { panic!("it was not elected") };
        let broken = store.client().lock("n").break_held(Some(fence), "the test").unwrap();
        assert!(matches!(broken, Break::Broken { .. }), "{broken:?}");
        let why = TermEnd::Lost(LossReason::Broken);
        assert_eq!(next(&changes), Leadership::Ended { fence, why });
        let (of, end, loss) = next(&told.1);
        assert_eq!((of, end), (fence, Some(why)));
        let loss = loss.unwrap();
        assert_eq!(loss.kind, EventKind::Lost(LossReason::Broken));
        assert!(loss.detail.unwrap().contains("the test"));

        let Leadership::Elected { fence: second } = next(&changes) else { panic!("not again") };
        assert!(second > fence);
        election.stop();
        let why = TermEnd::Resigned;
        assert_eq!(next(&changes), Leadership::Ended { fence: second, why });
        runs.join().unwrap().unwrap();
    });
    assert!(changes.try_recv().is_err());
    assert_eq!(fences.load(Ordering::Relaxed), 2);
}

fn c14_a_candidate_that_resigns_as_it_is_told_of_its_election_hears_of_the_end_after_that(
    store: &Store,
) {
    let client = store.client();
    let (sender, changes) = channel();
    let own = Arc::new(Mutex::new(None::<Election>));
    let election = client.election("n").on_change({
        let own = Arc::clone(&own);
        move |change| {
            if matches!(change, Leadership::Elected { .. }) {
                let own = own.lock().unwrap();
                assert!(own.as_ref().unwrap().is_leader());
                own.as_ref().unwrap().resign();
            }
            sender.send(change).unwrap();
        }
    });
    *own.lock().unwrap() = Some(election.clone());
    let term = election.stand().unwrap();
    let fence = term.fence();
    assert_eq!(next(&changes), Leadership::Elected { fence });
    assert_eq!(next(&changes), Leadership::Ended { fence, why: TermEnd::Resigned });
    assert!(!term.is_leader());
    term.resign().unwrap();
    *own.lock().unwrap() = None;
}

fn c14_a_stopped_election_ends_the_wait_and_the_work(store: &Store) {
    let client = store.client();
    let _held = client.lock("n").acquire().unwrap();
    let election = client.election("n");
    thread::scope(|scope| {
        let _stops = Stops([&election]);
        let stands = scope.spawn(|| election.stand().map(drop));
        let runs = scope.spawn(|| election.run_as_leader(|_| Ok::<(), Error>(())));
        eventually(LIMIT, || election.state() == ElectionState::Standby);
        election.stop();
        let stopped = stands.join().unwrap().unwrap_err();
        assert_eq!(stopped.kind(), ErrorKind::Interrupted);
        runs.join().unwrap().unwrap();
    });
    assert_eq!(election.stand().unwrap_err().kind(), ErrorKind::Interrupted);
    let mut asked = 0;
    let mut stand = || {
        client.election("n").stand_unless(|| {
            asked += 1;
            asked > 2
        })
    };
    // Another thread: this one holds the lock, and would wait for itself.
    let stopped = thread::scope(|scope| scope.spawn(&mut stand).join().unwrap());
    assert_eq!(stopped.unwrap_err().kind(), ErrorKind::Interrupted);
}

fn c13_what_can_never_be_elected_is_refused(store: &Store) {
    let client = store.client();
    for election in [
        client.election("n").ttl(ms(50)),
        client.election("n").ttl(Duration::MAX),
        client.election(""),
    ] {
        let refused = election.stand().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::BadArgument, "{refused}");
        assert_eq!(
            election.run_as_leader(|_| Ok::<(), Error>(())).unwrap_err().kind(),
            ErrorKind::BadArgument
        );
    }
    let (election, term) = (client.election("n"), client.election("n").stand().unwrap());
    client.close().unwrap();
    eventually(LIMIT, || term.ended_within(secs(1)));
    assert_eq!(term.end(), Some(TermEnd::Lost(LossReason::Expired)));
    assert_eq!(election.stand().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(term.resign().unwrap_err().kind(), ErrorKind::Closed);
}

/// A client that hears soon enough of a link that is cut.
fn through(server: &Server, link: &Link) -> Client {
    Client::open(&format!("{}?io_timeout=300ms", server.url_through(link.port()))).unwrap()
}

#[test]
fn c9_work_is_told_to_stop_while_its_lease_is_still_valid_and_nobody_is_elected_before() {
    let server = Server::start();
    let link = Link::to(&server);
    let election = through(&server, &link).election("n").ttl(secs(12));
    let term = election.stand().unwrap();
    let other = open(&server.url()).election("n");
    link.cut();
    eventually(LIMIT, || term.ended_within(secs(1)));
    let left = term.remaining();
    assert_eq!(term.end(), Some(TermEnd::AtRisk));
    assert!(left > secs(1) && left <= secs(4), "{left:?}");
    assert_eq!(election.state(), ElectionState::Stopping);
    // The store is back: the lease can be renewed, and the term is over all the same. The work still
    // stops, and has the time for it that it needs.
    link.heal();
    eventually(LIMIT, || term.remaining() > secs(4));
    assert!(!term.is_leader() && election.state() == ElectionState::Stopping);
    assert_eq!(other.stand_within(ms(50)).unwrap_err().kind(), ErrorKind::Timeout);
    let fence = term.fence();
    term.resign().unwrap();
    assert!(other.stand_within(LIMIT).unwrap().fence() > fence);
}

#[test]
fn c1_c2_c9_work_that_never_stops_is_told_unhealthy_when_another_may_lead() {
    let server = Server::start();
    let link = Link::to(&server);
    let election = through(&server, &link).election("n").ttl(ms(1500));
    let term = election.stand().unwrap();
    link.cut();
    let other = open(&server.url()).election("n").stand_within(LIMIT).unwrap();
    assert!(!term.is_leader() && term.remaining().is_zero() && other.fence() > term.fence());
    assert_eq!(election.state(), ElectionState::Overdue);
    assert!(!election.is_healthy() && !election.is_leader());
    link.heal();
    assert_eq!(term.resign().unwrap_err().kind(), ErrorKind::Lost);
    assert!(election.is_healthy() && other.is_leader());
}

#[test]
fn c10_a_candidate_waits_for_a_store_that_is_away_from_the_start() {
    let mut server = Server::start();
    let url = format!("{}?io_timeout=300ms", server.url());
    server.kill();
    let election = Client::open(&url).unwrap().election("n");
    let refused = election.stand_within(ms(10)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
    thread::scope(|scope| {
        let _stops = Stops([&election]);
        let stands = scope.spawn(|| election.stand());
        eventually(LIMIT, || election.state() == ElectionState::Standby);
        server.start_again();
        drop(stands.join().unwrap().unwrap());
    });
}

#[test]
fn c8_a_forked_child_is_no_candidate_of_its_parents() {
    kit::child::alone(|| {
        let server = Server::start();
        let client = open(&server.url());
        client.reopen_after_fork();
        let election = client.election("n");
        let term = election.stand().unwrap();
        // SAFETY: the child makes calls of the library only, which says that a child may, and ends.
        #[allow(unsafe_code)]
        let child = unsafe { nix::unistd::fork().unwrap() };
        if let nix::unistd::ForkResult::Parent { child } = child {
            let ended = nix::sys::wait::waitpid(child, None).unwrap();
            assert_eq!(ended, nix::sys::wait::WaitStatus::Exited(child, 0));
            assert!(term.is_leader() && holder(&client, "n").is_some());
            term.resign().unwrap();
            return;
        }
        let is_right = !term.is_leader()
            && term.remaining().is_zero()
            && election.state() == ElectionState::Idle
            && election.stand().is_err_and(|error| error.kind() == ErrorKind::Forked);
        election.stop();
        drop(term);
        std::process::exit(i32::from(!is_right));
    });
}
