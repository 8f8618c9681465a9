//! Sentinels, Clusters and quorums.

use std::time::Duration;

use kit::{Cluster, Namespace, Offset, SentinelGroup, Server, eventually};

use super::{LIMIT, assert_finds, assert_healthy, begun, examine, ids, open};

/// Times that suit a busy machine, and not too long.
fn set(group: &SentinelGroup, what: &str, value: &str) {
    for sentinel in &group.sentinels {
        sentinel.cmd(&["SENTINEL", "SET", "mymaster", what, value]);
    }
}

/// As docs/operate/redis.md advises.
fn group() -> SentinelGroup {
    let group = SentinelGroup::builder();
    let group = group.arg("--min-replicas-to-write", "1").arg("--min-replicas-max-lag", "3");
    let group = group.replicas(2).start();
    set(&group, "down-after-milliseconds", "5000");
    group
}

#[test]
fn sentinels_as_the_guide_advises_have_no_findings_and_what_is_wrong_there_is_found() {
    let mut group = group();
    let url = group.url() + "?guard_data_loss=yes";
    assert_healthy(&begun(&url));

    set(&group, "down-after-milliseconds", "30000");
    assert_finds(&url, "redis-slow-failover");
    set(&group, "down-after-milliseconds", "2000");
    assert_finds(&url, "sentinel-two-masters");
    set(&group, "down-after-milliseconds", "5000");
    for (quorum, is_wrong) in [("1", true), ("4", true), ("2", false)] {
        set(&group, "quorum", quorum);
        assert_eq!(ids(&examine(&url)).contains(&"sentinel-quorum"), is_wrong, "{quorum}");
    }
    group.sentinels[2].cmd(&["SENTINEL", "REMOVE", "mymaster"]);
    assert_finds(&url, "sentinels-differ");
    group.sentinels[2].cmd(&["SENTINEL", "MONITOR", "mymaster", "127.0.0.1", "1", "2"]);
    assert_finds(&url, "sentinels-differ");

    for sentinel in &mut group.sentinels[1..] {
        sentinel.kill();
    }
    assert_finds(&url, "sentinel-down");
    group.sentinels[0].cmd(&["SENTINEL", "RESET", "mymaster"]);
    assert_finds(&url, "sentinel-few");
}

#[test]
fn a_master_that_would_go_on_alone_is_found() {
    let group = SentinelGroup::start();
    assert_finds(&group.url(), "sentinel-two-masters");
}

#[test]
fn a_cluster_with_replicas_has_no_findings_and_a_node_that_fails_is_found() {
    let mut cluster = Cluster::builder().with_replicas().node_timeout(LIMIT / 6).start();
    let url = cluster.url() + "?guard_data_loss=yes";
    begun(&url);
    // The last replica may not be known everywhere yet.
    eventually(LIMIT, || ids(&examine(&url)).is_empty());
    for node in &cluster.nodes {
        node.server.config_set("cluster-node-timeout", "25000");
    }
    assert_finds(&url, "redis-slow-failover");
    for node in &cluster.nodes {
        node.server.config_set("cluster-node-timeout", "1000");
    }
    cluster.nodes[4].server.kill();
    eventually(LIMIT, || ids(&examine(&url)).contains(&"cluster-node-down"));
}

#[test]
fn a_cluster_that_lost_slots_is_found() {
    let mut cluster = Cluster::builder().node_timeout(Duration::from_secs(1)).start();
    assert_finds(&cluster.url(), "cluster-no-replica");
    cluster.nodes[1].server.kill();
    let url = format!("redis+cluster://127.0.0.1:{}", cluster.nodes[0].server.port());
    eventually(LIMIT, || ids(&examine(&url)).contains(&"cluster-down"));
}

fn url_of(servers: &[Server]) -> String {
    servers.iter().map(Server::url).collect::<Vec<_>>().join(",")
}

#[test]
fn a_quorum_of_three_has_no_findings_but_that_it_is_here() {
    let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
    assert_eq!(
        ids(&examine(&url_of(&servers))),
        ["redis-new", "redis-new", "redis-new", "quorum-here"]
    );
    open(&url_of(&servers)).initialize(false).unwrap();
    let client = open(&url_of(&servers));
    let _held = client.lock("held").acquire().unwrap();
    let _detached = client.lock("detached").acquire().unwrap().detach().unwrap();
    let found = examine(&url_of(&servers));
    assert_eq!(ids(&found), ["quorum-here"], "{:#?}", found.findings);
    assert!(found.is_fit());
    assert!(found.measured.iter().any(|it| it.what == "acquire_and_release"));
}

#[test]
fn members_that_are_down_unlike_or_late_are_found() {
    let mut servers: Vec<_> = (0..3).map(|_| Server::builder().clocked().start()).collect();
    let url = url_of(&servers);
    begun(&url);
    servers[1].config_set("appendonly", "yes");
    assert_finds(&url, "quorum-differ");
    servers[2].shift_clock(Offset::Ahead(Duration::from_secs(7200)));
    assert_finds(&url, "redis-clock");
    servers[0].kill();
    assert_finds(&url, "quorum-member-down");
}

/// Theirs is set back, which is the same.
#[test]
fn a_clock_of_this_machine_that_members_refuse_is_found() {
    let servers: Vec<_> = (0..3).map(|_| Server::builder().clocked().start()).collect();
    let url = url_of(&servers);
    open(&url).initialize(false).unwrap();
    let shift = |offset| servers.iter().for_each(|server| server.shift_clock(offset));
    shift(Offset::Behind(Duration::from_secs(7200)));
    let found = examine(&url);
    let ours = found.findings.iter().filter(|it| it.id == "quorum-clock-ahead");
    assert_eq!(ours.clone().count(), 3, "{:#?}", found.findings);
    assert!(ours.clone().all(|it| it.what.contains(": by 1 h 59 m ")), "{:#?}", found.findings);
    assert!(ids(&found).contains(&"lock-failed"), "{:#?}", found.findings);
    shift(Offset::Ahead(Duration::from_secs(7200)));
    assert_eq!(ids(&examine(&url)), ["quorum-here"]);
}

#[test]
fn members_that_are_not_independent_are_found() {
    let servers: Vec<_> = (0..2).map(|_| Server::builder().unix().start()).collect();
    let twice = format!("{},{}", url_of(&servers), servers[0].unix_url());
    assert_finds(&twice, "quorum-same-server");
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let servers: Vec<_> = (0..3).map(|_| Server::builder().behind(&namespace).start()).collect();
    assert_finds(&url_of(&servers), "quorum-same-host");
}
