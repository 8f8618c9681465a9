//! Whose process has died: here, whose store was dropped, and with it the only copy of its pulse.

use std::sync::Arc;

use super::*;
use crate::store::sqlite::open;
use crate::store::sqlite::pulse::Pulse;

/// A store that is dropped after it took the name, and after `also`.
fn dies(ground: &Ground, also: impl FnOnce(&SqliteStore, Token, u64)) -> u64 {
    let (store, ann) = (ground.store(), token());
    let pulse = Pulse::start(&ground.path()).map(Arc::new);
    Arc::get_mut(store.current.lock().as_mut().unwrap()).unwrap().pulse = pulse;
    let fence = fence(store.try_take(b"name", ann));
    also(&store, ann, fence);
    fence
}

fn is_busy(store: &SqliteStore) -> bool {
    matches!(store.try_take(b"name", token()), Reply::Busy { .. })
}

fn pass(store: &SqliteStore, from: Token, to: Token, fence: u64) {
    let (name, ttl, reach) = (b"name", TTL, Reach::Pass(to));
    let request = Request::Extend { name, token: from, fence, ttl, reach };
    assert_eq!(store.reply(request), Reply::Extended);
}

#[test]
fn c2_what_the_dead_had_is_free_at_once_under_a_larger_fence() {
    let ground = Ground::new();
    let store = ground.store();
    let first = dies(&ground, |_, _, _| assert!(is_busy(&store)));
    let look = store.look(b"name", Deadline::after(PATIENCE)).unwrap();
    assert!(look.holder.is_none() && look.last_fence == Some(first));
    let bob = token();
    assert!(fence(store.try_take(b"name", bob)) > first);
    assert!(is_busy(&ground.store()), "its own process lives");
    assert_eq!(store.extend(b"name", bob, TTL, Reach::Grow), Reply::Extended);
    assert!(is_busy(&ground.store()));
}

/// What still runs in it may rely on the ttl of a lease that was forgotten together with its client.
#[test]
fn c1_a_process_that_lives_keeps_what_its_closed_stores_had() {
    let ground = Ground::new();
    let store = ground.store();
    fence(store.try_take(b"name", token()));
    store.close();
    drop(store);
    assert!(is_busy(&ground.store()));
}

#[test]
fn what_was_passed_on_or_left_taken_outlives_its_process() {
    let passed_to_another = |store: &SqliteStore, ann, fence| pass(store, ann, token(), fence);
    let left_taken = |store: &SqliteStore, ann, fence| pass(store, ann, ann, fence);
    let left_for = |store: &SqliteStore, ann, _| {
        assert_eq!(store.extend(b"name", ann, TTL, Reach::Set), Reply::Extended);
    };
    // A renewal that was under way meanwhile changes nothing.
    let and_renewed = |store: &SqliteStore, ann, fence| {
        pass(store, ann, ann, fence);
        assert_eq!(store.extend(b"name", ann, TTL, Reach::Grow), Reply::Extended);
    };
    for also in
        [passed_to_another as fn(&SqliteStore, Token, u64), left_taken, left_for, and_renewed]
    {
        let ground = Ground::new();
        dies(&ground, also);
        assert!(is_busy(&ground.store()));
    }
}

#[test]
fn a_store_that_is_to_outlive_its_process_leaves_what_it_had() {
    let ground = Ground::new();
    let (mut file, config) = config(&ground.path(), None);
    file.outlive = true;
    let outliving = || SqliteStore::open(&file, &config.clone().io_timeout(PATIENCE)).unwrap();
    fence(outliving().try_take(b"name", token()));
    assert!(is_busy(&ground.store()));
    // It sees the dead as any other one does.
    ground.meddler().execute("UPDATE lease SET token = NULL", []).unwrap();
    dies(&ground, |_, _, _| ());
    assert!(!is_busy(&outliving()));
}

#[test]
fn c1_what_cannot_be_told_counts_as_alive() {
    let is_busy_after = |sql| {
        let ground = Ground::new();
        dies(&ground, |_, _, _| ());
        assert_eq!(ground.meddler().execute(sql, []).unwrap(), 1);
        is_busy(&ground.store())
    };
    assert!(!is_busy_after("UPDATE lease SET pulse = pulse"));
    for sql in [
        // A program that knows no pulses took it after the one that died.
        "UPDATE lease SET token = '0123456789abcdef0123456789abcdef'",
        // It has died in another folder.
        "UPDATE lease SET pulse = substr(pulse, 1, 33) || '9' || substr(pulse, 34)",
        "UPDATE lease SET pulse = token || ' '",
        "UPDATE lease SET pulse = pulse || '0000000000000000000000'",
        "UPDATE lease SET pulse = pulse || 'x'",
        "UPDATE lease SET pulse = ''",
        "UPDATE lease SET pulse = NULL",
    ] {
        assert!(is_busy_after(sql), "{sql}");
    }
}

#[test]
fn a_folder_that_may_not_be_read_leaves_all_to_the_ttl() {
    let ground = Ground::new();
    dies(&ground, |_, _, _| ());
    let nowhere = ground.folder.path().join("not there/locks.db");
    assert!(Pulse::of_process(&nowhere).is_none());
    let store = ground.store();
    Arc::get_mut(store.current.lock().as_mut().unwrap()).unwrap().pulse = None;
    assert!(is_busy(&store), "it cannot tell");
}

#[test]
fn a_file_of_an_earlier_schema_is_brought_up_to_date_and_forgets_nothing() {
    let ground = Ground::new();
    let first = dies(&ground, |_, _, _| ());
    let meddler = ground.meddler();
    meddler.execute_batch("ALTER TABLE lease DROP COLUMN pulse; PRAGMA user_version = 1").unwrap();
    let store = ground.store();
    assert!(is_busy(&store), "nobody has said how to see that its process has died");
    let schema: i32 = meddler.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    assert_eq!(schema, open::SCHEMA);
    meddler.execute("UPDATE lease SET expiry = 0", []).unwrap();
    assert!(dies(&ground, |_, _, _| ()) > first);
    assert!(!is_busy(&store));
}
