use super::*;
use crate::store::sqlite::waiters::DEAD_AFTER;

#[test]
fn c10_waiters_are_served_in_the_order_of_their_tickets() {
    let ground = Ground::new();
    let store = ground.store();
    let (holder, ann, bob, cid) = (token(), token(), token(), token());
    fence(store.try_take(b"name", holder));
    let first = ticket(store.join(b"name", ann, 0));
    let second = ticket(store.join(b"name", bob, 0));
    assert!(first < second);
    store.give(b"name", holder, 0);
    // A waiter that tries, joins late or stands behind is told to wait for the first one, as
    // long as that one shows itself. The disk may be slow, so the round is repeated until it was quick.
    until("a round without a pause", || {
        let started = Moment::now();
        stamp(&ground, DEAD_AFTER / 2);
        let replies = [
            store.try_take(b"name", cid),
            store.join(b"name", cid, 0),
            store.join(b"name", bob, second),
        ];
        let quick = Moment::now().since(started) < DEAD_AFTER / 4;
        if !quick {
            for token in [bob, cid] {
                store.give(b"name", token, 0);
            }
            return false;
        }
        for reply in replies {
            let Reply::Busy { free_in, .. } = reply else { panic!("{replies:?}") };
            assert!(free_in <= DEAD_AFTER);
        }
        true
    });
    fence(store.join(b"name", ann, first));
    assert_eq!(count(&ground), 2);
}

#[test]
fn c10_a_dead_waiter_is_skipped_and_buried() {
    let ground = Ground::new();
    let store = ground.store();
    let (holder, dead, ann) = (token(), token(), token());
    fence(store.try_take(b"name", holder));
    let left = ticket(store.join(b"name", dead, 0));
    let mine = ticket(store.join(b"name", ann, 0));
    store.give(b"name", holder, 0);
    until("the dead one's turn", || {
        matches!(store.join(b"name", ann, mine), Reply::Granted { .. })
    });
    assert_eq!(count(&ground), 0);
    store.give(b"name", ann, 0);
    // A try gets past the dead as well, and one that was only late keeps its place.
    let bob = token();
    fence(store.try_take(b"name", bob));
    assert_eq!(ticket(store.join(b"name", dead, left)), left);
}

#[test]
fn c10_a_newcomer_buries_the_dead_before_it() {
    let ground = Ground::new();
    let store = ground.store();
    fence(store.try_take(b"name", token()));
    for _ in 0..3 {
        ticket(store.join(b"name", token(), 0));
    }
    ground.meddler().execute("UPDATE waiter SET stamp = 1", []).unwrap();
    ticket(store.join(b"name", token(), 0));
    assert_eq!(count(&ground), 1);
}

#[test]
fn a_ticket_goes_on_under_a_new_token() {
    let ground = Ground::new();
    let store = ground.store();
    let (holder, old, new) = (token(), token(), token());
    fence(store.try_take(b"name", holder));
    let mine = ticket(store.join(b"name", old, 0));
    assert_eq!(ticket(store.join(b"name", new, mine)), mine);
    assert_eq!(count(&ground), 1);
    // The old token's leaving does not take the place along.
    assert_eq!(store.give(b"name", old, 0), Reply::NotMine);
    assert_eq!(count(&ground), 1);
    assert_eq!(store.give(b"name", new, 0), Reply::NotMine);
    assert_eq!(count(&ground), 0);
    store.give(b"name", holder, 0);
    fence(store.join(b"name", new, mine));
}

#[test]
fn a_waiter_writes_its_stamp_only_when_it_is_old() {
    let ground = Ground::new();
    let store = ground.store();
    let (holder, ann) = (token(), token());
    fence(store.try_take(b"name", holder));
    let mine = ticket(store.join(b"name", ann, 0));
    // Further ahead than this test can last, so that it is fresh for certain.
    let ahead = set_stamp(&ground, Moment::now().plus(PATIENCE));
    assert_eq!(ticket(store.join(b"name", ann, mine)), mine);
    assert_eq!(read_stamp(&ground), ahead);
    set_stamp(&ground, Moment::now().minus(DEAD_AFTER / 2));
    let before = read_stamp(&ground);
    assert_eq!(ticket(store.join(b"name", ann, mine)), mine);
    assert!(read_stamp(&ground) > before);
}

#[test]
fn nobody_who_only_tries_stands_in_the_queue() {
    let ground = Ground::new();
    let store = ground.store();
    fence(store.try_take(b"name", token()));
    assert_eq!(ticket(store.try_take(b"name", token())), 0);
    assert_eq!(count(&ground), 0);
}

fn count(ground: &Ground) -> i64 {
    ground.meddler().query_row("SELECT count(*) FROM waiter", [], |row| row.get(0)).unwrap()
}

/// Has every waiter shown itself so long ago.
fn stamp(ground: &Ground, ago: Duration) {
    set_stamp(ground, Moment::now().minus(ago));
}

fn set_stamp(ground: &Ground, moment: Moment) -> i64 {
    let nanos = moment.as_nanos() as i64;
    ground.meddler().execute("UPDATE waiter SET stamp = ?1", [nanos]).unwrap();
    nanos
}

fn read_stamp(ground: &Ground) -> i64 {
    ground.meddler().query_row("SELECT stamp FROM waiter", [], |row| row.get(0)).unwrap()
}
