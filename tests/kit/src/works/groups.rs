//! Groups of servers do what their names say: a master that fails is replaced, slots move.

use std::time::Duration;

use crate::wait::eventually_some;
use crate::*;
use redis::Value;

const LIMIT: Duration = Duration::from_secs(30);

fn text(value: &str) -> Value {
    Value::BulkString(value.as_bytes().to_vec())
}

#[test]
fn sentinels_replace_a_master_that_is_killed_and_one_that_is_told_to_step_down() {
    let mut group = SentinelGroup::builder().replicas(2).start();
    let hosts: Vec<_> =
        group.sentinels.iter().map(|sentinel| format!("127.0.0.1:{}", sentinel.port())).collect();
    assert_eq!(group.url(), format!("redis+sentinel://{}/mymaster", hosts.join(",")));
    let mut master = group.master().connection();
    redis::cmd("SET").arg(&["key", "value"]).exec(&mut master).unwrap();
    let copies: u64 = redis::cmd("WAIT").arg(&["2", "10000"]).query(&mut master).unwrap();
    assert_eq!(copies, 2);

    let first = group.master_index().unwrap();
    let election = group.fail_over();
    assert_ne!(election.master, first);
    assert_eq!(group.master().cmd(&["GET", "key"]), text("value"));
    let refused = group.servers[first].try_cmd(&["SET", "key", "other"]).unwrap_err();
    assert_eq!(refused.code(), Some("READONLY"));
    assert_eq!(group.replicas().len(), 2);

    let mut elections = group.elections();
    let killed = std::time::Instant::now();
    group.master_mut().kill();
    // A Sentinel may tell of the election before that late.
    let second = std::iter::repeat_with(|| elections.next(LIMIT))
        .find(|told| told.master != election.master)
        .expect("it repeats without end");
    println!("a new master {:?} after the death of the old one", second.at - killed);
    let master = eventually_some(LIMIT, || group.master_index());
    assert_eq!(master, second.master);
    assert_eq!(group.servers[master].cmd(&["SET", "key", "new"]), Value::Okay);

    // It learns that it is a replica now.
    group.servers[election.master].start_again();
    group.wait_until_ready();
    assert_eq!(group.master_index(), Some(second.master));
}

#[test]
fn a_stopped_master_is_replaced_and_steps_down_when_it_goes_on() {
    let group = SentinelGroup::start();
    let first = group.master_index().unwrap();
    let mut elections = group.elections();
    group.servers[first].stop();
    let election = elections.next(LIMIT);
    assert_ne!(election.master, first);
    group.servers[first].cont();
    group.wait_until_ready();
    let refused = group.servers[first].try_cmd(&["SET", "key", "value"]).unwrap_err();
    assert_eq!(refused.code(), Some("READONLY"));
}

#[test]
fn sentinels_and_servers_want_users_of_their_own_and_speak_tls() {
    let group = SentinelGroup::builder()
        .login("ann", "server-secret")
        .sentinel_login("bob", "sentinel-secret")
        .tls()
        .start();
    let first = group.master_index().unwrap();
    let url = group.tls_url();
    assert!(url.starts_with("rediss+sentinel://ann:server-secret@127.0.0.1:"), "{url}");
    let sentinels = "/mymaster?sentinel_user=bob&sentinel_password=sentinel-secret&ca=";
    assert!(url.contains(sentinels), "{url}");
    for server in group.servers.iter().chain(&group.sentinels) {
        let reply = socket::ask(&mut socket::dial(server.port()), "PING\r\n");
        assert!(reply.starts_with("-NOAUTH"), "{reply}");
    }
    let election = group.fail_over();
    assert_ne!(election.master, first);
    assert_eq!(group.master().cmd(&["SET", "key", "value"]), Value::Okay);
}

/// What a bare socket is told about a key.
fn told(server: &Server, request: &str) -> String {
    socket::ask(&mut server.bare_connection(), request)
}

#[test]
fn a_cluster_sends_who_asks_to_the_right_node_also_while_a_slot_moves_and_after() {
    let cluster = Cluster::start();
    let slot = cluster.slot_of("key");
    assert_eq!(slot, 12539);
    let old = cluster.node_of_key("key");
    let (new, other) = ((old + 1) % 3, (old + 2) % 3);
    let port = |node: usize| cluster.server(node).port();
    for key in ["{key}1", "{key}2"] {
        cluster.server(old).cmd(&["SET", key, "value", "PX", "100000"]);
    }
    let moved = format!("-MOVED {slot} 127.0.0.1:{}", port(old));
    assert_eq!(told(cluster.server(new), "GET {key}1\r\n"), moved);

    let migration = cluster.begin_migration(slot, new);
    let ask = format!("-ASK {slot} 127.0.0.1:{}", port(new));
    assert_eq!(told(cluster.server(old), "EXISTS {key}1\r\n"), ":1");
    assert_eq!(told(cluster.server(old), "GET {key}3\r\n"), ask);
    migration.move_key("{key}1");
    assert_eq!(told(cluster.server(old), "GET {key}1\r\n"), ask);
    let both = told(cluster.server(old), "EXISTS {key}1 {key}2\r\n");
    assert!(both.starts_with("-TRYAGAIN"), "{both}");
    migration.move_keys();
    migration.finish();
    assert_eq!(cluster.node_of(slot), Some(new));
    let moved = format!("-MOVED {slot} 127.0.0.1:{}", port(new));
    for node in [old, other] {
        assert_eq!(told(cluster.server(node), "GET {key}2\r\n"), moved);
    }
    assert_eq!(told(cluster.server(new), "EXISTS {key}1 {key}2\r\n"), ":2");
    cluster.move_slot(slot, other);
    assert_eq!(told(cluster.server(other), "EXISTS {key}1 {key}2\r\n"), ":2");
}

#[test]
fn a_cluster_replaces_a_master_that_is_killed_and_one_that_is_told_to_step_down() {
    let mut cluster = Cluster::builder().with_replicas().start();
    let (slot, node) = (cluster.slot_of("key"), cluster.node_of_key("key"));
    cluster.nodes[node].server.kill();
    let killed = std::time::Instant::now();
    let (replica, at) = cluster.replaced(slot, node);
    println!("a new master {:?} after the death of the old one", at - killed);
    assert_eq!(replica, node + 3);
    cluster.wait_until_ready();
    assert_eq!(cluster.server(replica).cmd(&["SET", "key", "value"]), Value::Okay);

    cluster.nodes[node].server.start_again();
    cluster.wait_until_ready();
    cluster.fail_over(node);
    assert_eq!(cluster.node_of(slot), Some(node));
    assert_eq!(cluster.server(node).cmd(&["GET", "key"]), text("value"));
}

#[test]
fn a_cluster_without_full_coverage_goes_on_with_what_is_left() {
    for required in [true, false] {
        let cluster = Cluster::builder().require_full_coverage(required);
        let mut cluster = cluster.node_timeout(Duration::from_millis(800)).start();
        let node = cluster.node_of_key("key");
        cluster.nodes[(node + 1) % 3].server.kill();
        if required {
            let down = || told(cluster.server(node), "GET key\r\n").starts_with("-CLUSTERDOWN");
            eventually(LIMIT, down);
        } else {
            let info = || cluster.server(node).cmd(&["CLUSTER", "INFO"]);
            let noticed = || redis::from_redis_value::<String>(info()).unwrap();
            eventually(LIMIT, || noticed().contains("cluster_slots_fail:546"));
            assert_eq!(told(cluster.server(node), "GET key\r\n"), "$-1");
        }
    }
}

#[test]
fn a_cluster_wants_a_user_and_speaks_tls() {
    let cluster = Cluster::builder().with_replicas().login("ann", "secret").tls().start();
    assert!(cluster.tls_url().starts_with("rediss+cluster://ann:secret@127.0.0.1:"));
    assert!(cluster.url().starts_with("redis+cluster://ann:secret@127.0.0.1:"));
    let (slot, node) = (cluster.slot_of("key"), cluster.node_of_key("key"));
    assert_eq!(cluster.server(node).cmd(&["SET", "key", "value"]), Value::Okay);
    cluster.move_slot(slot, (node + 1) % 3);
    assert_eq!(cluster.server((node + 1) % 3).cmd(&["GET", "key"]), text("value"));
    cluster.fail_over((node + 1) % 3 + 3);
}
