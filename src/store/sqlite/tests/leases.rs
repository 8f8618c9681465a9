use super::*;
use crate::clock::{Moment, wall_micros};
use crate::config::limits::MAX_FENCE;
use crate::error::ErrorKind;

#[test]
fn c1_a_name_has_one_holder_and_is_free_when_given() {
    let (ground, ann, bob) = (Ground::new(), token(), token());
    let (store, other) = (ground.store(), ground.store());
    let first = fence(store.try_take(b"name", ann));
    let Reply::Busy { free_in, ticket: 0, .. } = other.try_take(b"name", bob) else { panic!() };
    assert!(free_in <= TTL && free_in > TTL / 2, "{free_in:?}");
    assert_eq!(store.give(b"name", ann, first), Reply::Given);
    assert!(fence(other.try_take(b"name", bob)) > first);
}

#[test]
fn c2_fence_grows_across_release_expiry_and_reopen() {
    let ground = Ground::new();
    let store = ground.store();
    let started = wall_micros();
    let first = fence(store.try_take(b"name", token()));
    assert!(first >= started);
    // A clock that was set back does not bring it back.
    let ahead = first + 3_600_000_000;
    ground.meddler().execute("UPDATE lease SET token = NULL, fence = ?1", [ahead as i64]).unwrap();
    let ann = token();
    let second = fence(store.take_for(b"name", ann, TTL));
    assert_eq!(second, ahead + 1);
    assert_eq!(store.extend(b"name", ann, Duration::ZERO, Reach::Set), Reply::Extended);
    let bob = token();
    assert_eq!(fence(store.try_take(b"name", bob)), ahead + 2);
    assert_eq!(store.give(b"name", bob, 0), Reply::Given);
    drop(store);
    let store = ground.store();
    assert_eq!(fence(store.try_take(b"name", token())), ahead + 3);
    let look = store.inspect(b"name", Deadline::after(PATIENCE)).unwrap();
    assert_eq!(look.last_fence, Some(ahead + 3));
}

#[test]
fn c2_a_fence_at_the_end_of_its_range_is_refused_and_nothing_is_written() {
    let ground = Ground::new();
    let store = ground.store();
    let ann = token();
    let first = fence(store.try_take(b"name", ann));
    store.give(b"name", ann, first);
    for stored in [MAX_FENCE as i64, i64::MAX, -1] {
        let meddler = ground.meddler();
        meddler.execute("UPDATE lease SET fence = ?1", [stored]).unwrap();
        let take =
            Request::Take { name: b"name", token: ann, ttl: TTL, place: Place::Try, block: 1 };
        let failure = store.ask(Lane::Caller, take, Deadline::after(PATIENCE)).unwrap_err();
        assert_eq!(failure.error.kind(), ErrorKind::WrongType);
        let said = failure.error.to_string();
        let mend = "DELETE FROM lease WHERE name = x'6e616d65';";
        assert!(said.contains("locks.db") && said.ends_with(mend), "{said}");
        assert!(said.contains(&format!("fence = {stored}")), "{said}");
        assert!(failure.sent.is_none());
        let kept: (Option<String>, i64) = meddler
            .query_row("SELECT token, fence FROM lease", [], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap();
        assert_eq!(kept, (None, stored));
    }
    ground.meddler().execute("UPDATE lease SET fence = ?1", [MAX_FENCE as i64 - 1]).unwrap();
    assert_eq!(fence(store.try_take(b"name", ann)), MAX_FENCE);
}

#[test]
fn c3_the_lease_lasts_at_least_for_its_ttl_from_the_moment_that_is_told() {
    let ground = Ground::new();
    let store = ground.store();
    let before = Moment::now();
    let take =
        Request::Take { name: b"name", token: token(), ttl: TTL, place: Place::Try, block: 1 };
    let answer = store.ask(Lane::Caller, take, Deadline::after(PATIENCE)).unwrap();
    let expiry: i64 =
        ground.meddler().query_row("SELECT expiry FROM lease", [], |row| row.get(0)).unwrap();
    assert!(answer.sent >= before);
    assert!(Moment::from_nanos(expiry as u64) >= answer.sent.plus(TTL));
    assert!(Moment::from_nanos(expiry as u64) <= Moment::now().plus(TTL));
}

#[test]
fn c4_a_loser_touches_nothing() {
    let ground = Ground::new();
    let store = ground.store();
    let (ann, bob) = (token(), token());
    let held = fence(store.try_take(b"name", ann));
    let row = || -> (String, i64, i64) {
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        ground.meddler().query_row("SELECT token, fence, expiry FROM lease", [], read).unwrap()
    };
    let before = row();
    ticket(store.try_take(b"name", bob));
    ticket(store.join(b"name", bob, 0));
    for reach in [Reach::Grow, Reach::Claim, Reach::Set] {
        assert_eq!(store.extend(b"name", bob, TTL * 2, reach), Reply::NotMine);
    }
    assert_eq!(store.give(b"name", bob, held), Reply::NotMine);
    assert_eq!(row(), before);
}

#[test]
fn c5_give_and_extend_act_on_ones_own_grant_only() {
    let ground = Ground::new();
    let store = ground.store();
    let ann = token();
    assert_eq!(store.give(b"name", ann, 0), Reply::NotMine);
    assert_eq!(store.extend(b"name", ann, TTL, Reach::Grow), Reply::NotMine);
    let first = fence(store.try_take(b"name", ann));
    // Another grant of the same token, whose take landed late: freed, and not the one released.
    assert_eq!(store.give(b"name", ann, first - 1), Reply::NotMine);
    assert_eq!(store.remaining(b"name"), None);
    assert_eq!(store.give(b"name", ann, first), Reply::NotMine);
    fence(store.try_take(b"name", ann));
    assert_eq!(store.give(b"name", ann, 0), Reply::Given);
}

#[test]
fn c5_what_has_ended_is_nobodys_and_is_taken_over_in_place() {
    let ground = Ground::new();
    let store = ground.store();
    let (ann, bob) = (token(), token());
    let first = fence(store.try_take(b"name", ann));
    assert_eq!(store.extend(b"name", ann, Duration::ZERO, Reach::Set), Reply::Extended);
    assert_eq!(store.remaining(b"name"), None);
    assert_eq!(store.extend(b"name", ann, TTL, Reach::Grow), Reply::NotMine);
    assert_eq!(store.give(b"name", ann, first), Reply::NotMine);
    let again = fence(store.try_take(b"name", ann));
    assert!(again > first);
    store.extend(b"name", ann, Duration::ZERO, Reach::Set);
    assert!(fence(store.try_take(b"name", bob)) > again);
    let rows: i64 =
        ground.meddler().query_row("SELECT count(*) FROM lease", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 1);
}

#[test]
fn a_holder_of_another_boot_is_gone() {
    let ground = Ground::new();
    let store = ground.store();
    let (ann, bob) = (token(), token());
    let first = fence(store.try_take(b"name", ann));
    let joined = ticket(store.join(b"name", bob, 0));
    let meddler = ground.meddler();
    meddler.execute_batch("UPDATE lease SET boot = 'x'; UPDATE waiter SET boot = 'x'").unwrap();
    assert_eq!(store.remaining(b"name"), None);
    assert_eq!(store.extend(b"name", ann, TTL, Reach::Grow), Reply::NotMine);
    assert!(fence(store.try_take(b"name", ann)) > first);
    assert!(joined > 0);
    let waiters: i64 =
        meddler.query_row("SELECT count(*) FROM waiter", [], |row| row.get(0)).unwrap();
    assert_eq!(waiters, 0);
}

#[test]
fn every_request_may_be_sent_twice() {
    let ground = Ground::new();
    let store = ground.store();
    let (ann, bob) = (token(), token());
    let short = Duration::from_secs(5);
    let first = fence(store.take_for(b"name", ann, short));
    assert_eq!(fence(store.try_take(b"name", ann)), first);
    assert!(store.remaining(b"name").unwrap() > short, "the second one grows the lease");
    assert_eq!(fence(store.take_for(b"name", ann, short)), first);
    assert!(store.remaining(b"name").unwrap() > short, "and never makes it shorter");
    assert_eq!(ticket(store.join(b"name", bob, 0)), ticket(store.join(b"name", bob, 0)));
    for _ in 0..2 {
        assert_eq!(store.extend(b"name", ann, short, Reach::Grow), Reply::Extended);
        assert!(store.remaining(b"name").unwrap() > short);
    }
    for _ in 0..2 {
        assert_eq!(store.extend(b"name", ann, short, Reach::Set), Reply::Extended);
        assert!(store.remaining(b"name").unwrap() <= short);
    }
    assert_eq!(store.give(b"name", ann, first), Reply::Given);
    assert_eq!(store.give(b"name", ann, first), Reply::NotMine);
}

#[test]
fn requests_travel_together_and_are_answered_in_order() {
    let ground = Ground::new();
    let store = ground.store();
    let (ann, bob) = (token(), token());
    let name = b"name";
    let requests = [
        Request::Take { name, token: ann, ttl: TTL, place: Place::Try, block: 1 },
        Request::Take { name, token: bob, ttl: TTL, place: Place::Try, block: 1 },
        Request::Give { name, token: ann, fence: 0, ttl: TTL },
        Request::Take { name, token: bob, ttl: TTL, place: Place::Try, block: 1 },
        Request::Extend { name, token: ann, ttl: TTL, reach: Reach::Grow, fence: 0 },
    ];
    let outcomes = store.run(Lane::Keeper, &requests, Deadline::after(PATIENCE));
    let replies: Vec<Reply> = outcomes.into_iter().map(|outcome| outcome.unwrap().reply).collect();
    let &[
        Reply::Granted { fence: a, .. },
        Reply::Busy { .. },
        Reply::Given,
        Reply::Granted { fence: b, .. },
        Reply::NotMine,
    ] = &*replies
    else {
        panic!("{replies:?}")
    };
    assert!(b > a);
    assert!(store.run(Lane::Keeper, &[], Deadline::after(PATIENCE)).is_empty());
}

#[test]
fn names_are_bytes_and_the_prefix_keeps_them_apart() {
    let ground = Ground::new();
    let plain = ground.store();
    let (file, config) = config(&ground.path(), None);
    let config = config.io_timeout(PATIENCE).prefix("p:");
    let prefixed = SqliteStore::open(&file, &config).unwrap();
    let long = vec![0xff; crate::config::limits::MAX_NAME];
    for name in [&b"a"[..], b"a\0", b"a\0b", b"\xff\xfe", b"{a}", b"'; --", &long] {
        fence(plain.try_take(name, token()));
        ticket(plain.try_take(name, token()));
        fence(prefixed.try_take(name, token()));
    }
    let ann = token();
    ticket(plain.try_take(b"p:a", ann));
    let held = plain.inspect(b"p:a", Deadline::after(PATIENCE)).unwrap().holder.unwrap();
    assert_eq!(held.token_prefix.len(), 16);
    assert_eq!(held.fence, plain.inspect(b"p:a", Deadline::after(PATIENCE)).unwrap().last_fence);
}

#[test]
fn unused_rows_are_swept_and_held_ones_are_not() {
    let ground = Ground::new();
    let store = ground.store();
    let held = token();
    fence(store.try_take(b"held", held));
    for number in 0..20_u8 {
        let one = token();
        fence(store.try_take(&[number], one));
        store.give(&[number], one, 0);
    }
    let hours = (wall_micros() / 3_600_000_000) as i64;
    let meddler = ground.meddler();
    meddler.execute("UPDATE lease SET used = ?1 - 24 WHERE name <> x'00'", [hours]).unwrap();
    let rows = || -> i64 {
        meddler.query_row("SELECT count(*) FROM lease", [], |row| row.get(0)).unwrap()
    };
    fence(store.try_take(b"passing", token()));
    assert!(rows() >= 22, "25 h are not over: {}", rows());
    meddler.execute("UPDATE lease SET used = ?1 - 27 WHERE name <> x'00'", [hours]).unwrap();
    meddler
        .execute(
            "INSERT INTO waiter (name, ticket, token, stamp, boot) VALUES (x'01', 5, 'x', 1, 'x')",
            [],
        )
        .unwrap();
    let ann = token();
    fence(store.try_take(b"passing by", ann));
    assert!(rows() >= 18, "a few at a time: {}", rows());
    // The oldest row of all is held: it is neither removed nor in the way.
    for _ in 0..20 {
        store.give(b"passing by", ann, 0);
        fence(store.try_take(b"passing by", ann));
    }
    let mut names = meddler.prepare("SELECT name FROM lease ORDER BY name").unwrap();
    let names: Vec<Vec<u8>> =
        names.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(names, [&[0][..], b"held", b"passing", b"passing by"]);
    let waiters: i64 =
        meddler.query_row("SELECT count(*) FROM waiter", [], |row| row.get(0)).unwrap();
    assert_eq!(waiters, 0);
    // An extension counts as use.
    assert_eq!(store.extend(b"held", held, TTL, Reach::Claim), Reply::Extended);
    let used: i64 = meddler
        .query_row("SELECT used FROM lease WHERE name = cast('held' AS BLOB)", [], |row| row.get(0))
        .unwrap();
    assert!(used >= hours);
}
