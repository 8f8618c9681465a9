//! A single server that is guarded against lost data.

use super::*;
use crate::error::ErrorKind;
use crate::store::redis::dialect::world::MARKER;
use kit::Server;

const GUARD: Guard = Guard { max_ttl: TTL, clustered: false };

fn guarded() -> World {
    let world = World::told_run();
    world.load(&[&GUARDED_TAKE, &GUARDED_GIVE]);
    world.initialize(GUARD, false).unwrap();
    world.with(native(WINDOW, Some(GUARD)))
}

impl World {
    #[track_caller]
    fn assert_refused(&self, request: Request<'_>) {
        let before = (self.holder(), self.side(), self.queue());
        let batch = self.dialect.pack(&[request], &|_| open("leasehold:wake:9"));
        let value = self.carry(&batch);
        let refused = self.dialect.read(&request, (value, None), Moment::now()).unwrap_err();
        assert_eq!(refused.sent, None, "it was not done");
        let refused = refused.error;
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
        assert!(refused.to_string().contains("nothing for another"), "{refused}");
        assert_eq!(before, (self.holder(), self.side(), self.queue()));
    }

    fn wait_out(&self) {
        let marker = self.text(&["GET", MARKER]).unwrap();
        let words: Vec<&str> = marker.split(' ').collect();
        self.cmd(&["SET", MARKER, &format!("{} 1 {}", words[0], words[2])]);
    }
}

#[test]
fn a_guarded_server_does_what_any_other_does() {
    let world = guarded();
    let mut listener = [2, 3].map(|client| world.listen(client));
    let (fence, _) = granted(world.ask(take(1, Place::Try, 7), 1));
    let tickets = world.tickets(2..5);
    assert_eq!(world.queue(), [2, 3, 4]);
    assert_eq!(world.give(1, fence), Reply::Given);
    let (fence, _) = listener[0].heard_grant();
    assert_eq!(world.claim(2, fence), Reply::Extended);
    assert_eq!(world.give(3, 0), Reply::NotMine);
    assert_eq!(world.give(2, fence), Reply::Given);
    granted(world.join(4, tickets[2]));
    assert_eq!(world.claim(9, fence), Reply::NotMine);
}

#[test]
fn what_the_guard_costs_is_a_look_at_the_marker_and_the_time() {
    let world = guarded();
    let (last, _) = granted(world.try_take(1));
    assert_eq!(world.give(1, last), Reply::Given);
    let mut fence = 0;
    assert_eq!(world.calls_in(|| fence = granted(world.try_take(1)).0), 4 + 2);
    // It hands the lock to nobody, so it needs no guard.
    assert_eq!(world.calls_in(|| assert_eq!(world.give(1, fence), Reply::Given)), 3);
}

#[test]
fn a_server_that_comes_back_with_an_older_file_grants_confirms_and_hands_over_nothing() {
    let world = guarded();
    let (first, _) = granted(world.try_take(1));
    world.tickets(2..5);
    world.server.save();
    // What the file does not know.
    assert_eq!(world.give(1, first), Reply::Given);
    let world = world.restarted(|server| {
        server.kill();
        server.start_again();
    });
    assert_eq!((world.holder(), world.queue()), (Some(1), vec![2, 3, 4]));
    let mut listener = [2, 3, 4].map(|client| world.listen(client));
    let name = NAME;
    for (client, place) in
        [(1, Place::Try), (1, Place::Join(0)), (2, Place::Join(5)), (9, Place::Try)]
    {
        world.assert_refused(take(client, place, 1));
    }
    // Who holds it and relies on it may go on: nobody else is granted it.
    let (token, ttl) = (token(1), TTL);
    for reach in [Reach::Grow, Reach::Claim] {
        let extend = Request::Extend { name, token, fence: first, ttl, reach };
        assert_eq!(world.ask(extend, 1), Reply::Extended);
    }

    // It can be given up, and nobody is handed it or told anything.
    assert_eq!(world.give(1, first), Reply::Given);
    assert_eq!((world.holder(), world.queue()), (None, vec![2, 3, 4]));
    assert!(world.side().is_some_and(|(.., queued)| queued));
    assert!(listener.iter_mut().all(|wakeup| wakeup.heard().is_empty()));
    assert_eq!(world.give(9, 0), Reply::NotMine, "the lock is free");
    assert_eq!((world.holder(), world.queue()), (None, vec![2, 3, 4]));
    world.assert_refused(take(2, Place::Join(0), 1));

    world.wait_out();
    granted(world.join(2, 1));
    assert_eq!(world.give(2, 0), Reply::Given);
    assert_eq!(world.holder(), Some(3));
}

#[test]
fn a_lease_is_refreshed_through_a_quarantine_and_begins_it() {
    let world = guarded();
    let (fence, _) = granted(world.try_take(1));
    let world = world.restarted(Server::restart_with_data);
    world.cmd(&["PEXPIRE", SIDE, "1000"]);
    assert_eq!(world.claim(1, fence), Reply::Extended);
    assert!(world.number(&["PTTL", SIDE]) > 80_000_000);
    let marker = world.text(&["GET", MARKER]).unwrap();
    assert!(!marker.contains(" 0 "), "{marker}");
    // Once.
    assert_eq!(world.claim(1, fence), Reply::Extended);
    assert_eq!(world.text(&["GET", MARKER]), Some(marker));
    world.assert_refused(take(2, Place::Try, 1));
    for (client, fence) in [(1, fence + 1), (1, fence - 1), (2, fence)] {
        assert_eq!(world.claim(client, fence), Reply::NotMine);
    }
    world.expire();
    assert_eq!(world.claim(1, fence), Reply::NotMine);
    assert_eq!(world.holder(), None);
}

#[test]
fn whatever_is_wrong_with_the_marker_a_lease_is_refreshed() {
    let world = guarded();
    let (fence, _) = granted(world.try_take(1));
    for strange in [&["SET", MARKER, "what is this"][..], &["LPUSH", MARKER, "a list"]] {
        world.cmd(&["DEL", MARKER]);
        world.cmd(strange);
        assert_eq!(world.claim(1, fence), Reply::Extended, "{strange:?}");
        assert!(world.try_ask(take(2, Place::Try, 1), open("c")).is_err());
    }
    // No memory to note a quarantine in.
    world.cmd(&["DEL", MARKER]);
    world.cmd(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(world.claim(1, fence), Reply::Extended);
}

#[test]
fn a_give_before_anybody_asks_hands_over_nothing_either() {
    let world = guarded();
    let mut wakeup = world.listen(2);
    granted(world.try_take(1));
    world.ticket(2);
    for lost in [
        &["DEL", MARKER][..],
        &["SET", MARKER, "0123456789abcdef0123456789abcdef01234567 0 600000"],
        &["SET", MARKER, "what is this"],
        &["LPUSH", MARKER, "a list"],
    ] {
        world.cmd(&["DEL", MARKER]);
        world.cmd(lost);
        world.cmd(&["SET", "n", &token(1).to_string(), "PX", "60000"]);
        assert_eq!(world.give(1, 0), Reply::Given, "{lost:?}");
        assert_eq!((world.holder(), world.queue()), (None, vec![2]));
        assert_eq!(wakeup.heard(), []);
    }
}

#[test]
fn a_give_in_quarantine_by_one_who_may_not_look_into_queues_frees_the_lock() {
    let world = guarded();
    granted(world.try_take(1));
    world.ticket(2);
    world.cmd(&["DEL", MARKER]);
    for missing in ["-zrange", "-publish", "-zrange -publish -zrem"] {
        let rights: Vec<&str> =
            ["~*", "&*", "+@all"].into_iter().chain(missing.split(' ')).collect();
        let plain = world.allowed(&rights, native(WINDOW, Some(GUARD)));
        world.cmd(&["SET", "n", &token(1).to_string(), "PX", "60000"]);
        assert_eq!(plain.give(1, 0), Reply::Given, "{missing}");
        assert_eq!((world.holder(), world.queue()), (None, vec![2]));
        assert!(world.side().is_some_and(|(.., queued)| queued));
    }
}

#[test]
fn an_emptied_server_is_in_quarantine_though_it_ran_on() {
    let world = guarded();
    let (fence, _) = granted(world.try_take(1));
    world.cmd(&["FLUSHALL"]);
    world.assert_refused(take(2, Place::Join(0), 1));
    assert_eq!(world.give(1, fence), Reply::NotMine);
    world.wait_out();
    assert!(granted(world.try_take(2)).0 > fence);
}

#[test]
fn a_client_with_longer_leases_is_told_so() {
    let world = guarded();
    let longer = Guard { max_ttl: TTL * 2, clustered: false };
    let world = world.with(native(WINDOW, Some(longer)));
    let request = take(1, Place::Try, 1);
    let refused = world.try_ask(request, NO_WAKEUP).unwrap_err();
    assert_eq!((refused.kind(), world.holder()), (ErrorKind::BadArgument, None));
}

#[test]
fn a_server_that_is_not_guarded_is_asked_for_nothing_more() {
    let world = World::new();
    let requests = [take(1, Place::Join(0), 1), give(1, 5)];
    let batch = world.dialect.pack(&requests, &|_| open("c"));
    let plain = batch.for_run(None).unwrap();
    assert!(!String::from_utf8_lossy(&plain).contains("marker"));
    let guarded = native(WINDOW, Some(GUARD));
    assert!(guarded.pack(&requests, &|_| open("c")).for_run(None).is_err());
}
