//! The fence of a later holder is larger, whatever happened to the store in between.

use crate::stores::{LIMIT, Store, eventually_free, ms, on_each_store, open, secs};
use kit::{Server, eventually};
use leasehold::ErrorKind;
use redis::Value;

on_each_store!(
    c2_fence_grows_across_release_drop_expiry_and_clients,
    c2_fence_counts_for_each_name_alone_and_is_shown,
);

fn text(value: &str) -> Value {
    Value::BulkString(value.as_bytes().to_vec())
}

fn c2_fence_grows_across_release_drop_expiry_and_clients(store: &Store) {
    let (one, two) = (store.client(), store.client());
    let mut last = 0;
    for round in 0..6 {
        let client = if round % 2 == 0 { &one } else { &two };
        // A busy machine takes less for a request: what is over when it is granted is nobody's.
        let lease = client.lock("n").ttl(ms(700)).try_acquire().unwrap().expect("free by now");
        assert!(lease.fence() > last, "{} after {last}", lease.fence());
        assert!(lease.fence() <= leasehold::limits::MAX_FENCE);
        last = lease.fence();
        match round % 3 {
            0 => lease.release().unwrap(),
            1 => drop(lease),
            _ => lease.let_expire().unwrap(),
        }
        eventually_free(&one, "n");
    }
}

fn c2_fence_counts_for_each_name_alone_and_is_shown(store: &Store) {
    let client = store.client();
    assert_eq!(client.lock("a").inspect().unwrap().last_fence, None);
    let a = client.lock("a").acquire().unwrap();
    let seen = client.lock("a").inspect().unwrap();
    assert_eq!(seen.last_fence, Some(a.fence()));
    let holder = seen.holder.unwrap();
    assert_eq!(holder.fence, Some(a.fence()));
    assert_eq!(holder.token_prefix, a.token().to_string()[..16]);
    assert!(holder.ttl <= secs(30) && holder.ttl > secs(20), "{:?}", holder.ttl);
    let fence = a.fence();
    a.release().unwrap();
    let seen = client.lock("a").inspect().unwrap();
    // Where it is forgotten, the next one is larger all the same.
    assert_eq!((seen.holder, seen.last_fence), (None, store.keeps_fences().then_some(fence)));
    assert!(client.lock("a").acquire().unwrap().fence() > fence);
    assert_eq!(client.lock("b").inspect().unwrap().last_fence, None);
}

#[test]
fn c2_a_fence_is_kept_for_as_long_as_the_url_says_and_grows_after_that() {
    for more in ["", "&guard_data_loss=yes"] {
        for (life, hours) in [("28h", 28), ("4h", 4)] {
            let server = Server::start();
            let client = open(&format!("{}?fence_life={life}{more}", server.url()));
            if !more.is_empty() {
                client.initialize(false).unwrap();
            }
            let side = "leasehold:{n}";
            let assert_kept = || {
                let Value::Int(left) = server.cmd(&["PTTL", side]) else { panic!("no number") };
                let whole = hours * 3_600_000;
                assert!((whole - 60_000..=whole).contains(&left), "{left} ms of {life}");
            };
            let turn = |wait| {
                let lease = client.lock("n").acquire_within(wait).unwrap();
                assert_kept();
                let fence = lease.fence();
                lease.release().unwrap();
                assert_kept();
                fence
            };
            let first = turn(ms(0));
            let second = turn(LIMIT);
            assert_eq!(server.calls("setrange"), 1, "the second one is an everyday take");
            server.cmd(&["DEL", side]);
            assert!(second > first && turn(LIMIT) > second);
        }
    }
}

#[test]
fn c2_fence_grows_when_the_server_forgets_all_while_held() {
    let server = Server::start();
    let (one, two) = (open(&server.url()), open(&server.url()));
    let first = one.lock("n").acquire().unwrap();
    server.cmd(&["FLUSHALL"]);
    let second = two.lock("n").try_acquire().unwrap().unwrap();
    assert!(second.fence() > first.fence());
    assert_eq!(first.release().unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(server.cmd(&["GET", "n"]), text(&second.token().to_string()));
}

#[test]
fn c2_fence_grows_when_the_server_comes_back_empty() {
    let mut server = Server::start();
    let client = open(&server.url());
    let first = client.lock("n").acquire().unwrap();
    server.restart_empty();
    let second = client.lock("n").acquire_within(LIMIT).unwrap();
    assert!(second.fence() > first.fence());
}

#[test]
fn c2_fence_grows_when_the_servers_clock_was_set_back() {
    let server = Server::start();
    let client = open(&server.url());
    let fence = client.lock("n").acquire().unwrap().fence();
    // As if the last one had been given out in an hour from now.
    let ahead = fence + 3_600_000_000;
    let token = "00112233445566778899aabbccddeeff";
    server.cmd(&["SET", "leasehold:{n}", &format!("0 {ahead} {ahead} {token}"), "PX", "100000"]);
    assert_eq!(client.lock("n").acquire().unwrap().fence(), ahead + 1);
    assert_eq!(client.lock("n").acquire().unwrap().fence(), ahead + 2);
}

#[test]
fn c2_fence_at_the_end_of_its_range_is_refused_and_nothing_touched() {
    let server = Server::start();
    let client = open(&server.url());
    let token = "00112233445566778899aabbccddeeff";
    let side = |fence: u64| format!("0 {fence} {fence} {token}");
    let set = |value: &str| server.cmd(&["SET", "leasehold:{n}", value, "PX", "100000"]);
    set(&side(leasehold::limits::MAX_FENCE - 1));
    assert_eq!(client.lock("n").acquire().unwrap().fence(), leasehold::limits::MAX_FENCE);

    for stored in [leasehold::limits::MAX_FENCE, leasehold::limits::MAX_FENCE + 1, u64::MAX] {
        set(&side(stored));
        let error = client.lock("n").try_acquire().unwrap_err();
        assert!(error.to_string().contains("end of its range"), "{error}");
        assert_eq!(server.cmd(&["EXISTS", "n"]), Value::Int(0));
        assert_eq!(server.cmd(&["GET", "leasehold:{n}"]), text(&side(stored)));
    }
}

#[test]
fn c2_side_keys_live_25_hours_and_nothing_else_is_left() {
    let server = Server::start();
    let client = open(&server.url());
    for index in 0..20 {
        drop(client.lock(format!("once:{index}")).acquire().unwrap());
    }
    // Where that takes long, the client has said who it is meanwhile.
    let keys = || redis::from_redis_value::<Vec<String>>(server.cmd(&["KEYS", "*"])).unwrap();
    let others = |key: &String| !key.starts_with("leasehold:client:");
    eventually(LIMIT, || keys().iter().filter(|key| others(key)).count() == 20);
    for index in 0..20 {
        let Value::Int(left) = server.cmd(&["PTTL", &format!("leasehold:{{once:{index}}}")]) else {
            panic!("PTTL answers a number")
        };
        let hour = 3_600_000;
        assert!(left > 25 * hour && left <= 28 * hour, "{left}");
    }
}
