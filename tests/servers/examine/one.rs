//! One Redis.

use std::net::Ipv4Addr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kit::{Mode, Namespace, Offset, Proxy, Server, eventually};
use leasehold::{Checkup, Client, Severity};

use super::{assert_finds, assert_healthy, begun, examine, ids, open};

#[test]
fn a_server_as_the_guide_advises_has_no_findings() {
    let server = Server::start();
    let found = begun(&(server.url() + "?guard_data_loss=yes&prefix=lock:"));
    assert_healthy(&found);
    let tried = |what: &str| found.measured.iter().any(|it| it.what == what);
    assert!(tried("round_trip_p99") && tried("version") && tried("acquire_and_release"));
}

#[test]
fn a_server_without_a_guard_is_a_note_unless_its_file_has_all() {
    let server = Server::start();
    let found = examine(&server.url());
    assert_eq!(ids(&found), ["redis-forgets"]);
    assert!(found.is_fit() && found.findings[0].severity == Severity::Note);
    server.config_set("appendfsync", "always");
    server.config_set("appendonly", "yes");
    assert_healthy(&examine(&server.url()));
}

#[test]
fn settings_that_harm_a_lock_are_found() {
    let server = Server::start();
    for (name, value, id) in [
        ("maxmemory-policy", "allkeys-lru", "redis-evicts"),
        ("maxmemory-policy", "volatile-ttl", "redis-evicts"),
        ("timeout", "30", "redis-idle"),
        ("tcp-keepalive", "0", "redis-keepalive"),
        ("client-output-buffer-limit", "pubsub 4096 0 0", "redis-wakeups-cut"),
    ] {
        server.config_set(name, value);
        assert_finds(&server.url(), id);
    }
}

#[test]
fn a_server_that_is_nearly_full_is_found() {
    let server = Server::start();
    let info = server.info("memory");
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
    let used: u64 = used.parse().unwrap();
    server.config_set("maxmemory", &(used + used / 50).to_string());
    assert_finds(&server.url(), "redis-full");
    server.config_set("maxmemory", &(used * 2).to_string());
    assert!(!ids(&examine(&server.url())).contains(&"redis-full"));
}

#[test]
fn a_server_with_hardly_a_connection_left_is_found() {
    let server = Server::builder().arg("--maxclients", "20").start();
    let _others: Vec<_> = (0..16).map(|_| server.connection()).collect();
    assert_finds(&server.url(), "redis-clients");
}

#[test]
fn a_server_that_cannot_write_its_file_is_found() {
    let server = Server::builder().arg("--dir", "/proc").start();
    server.cmd(&["SET", "k", "v"]);
    server.cmd(&["BGSAVE"]);
    let failed = || server.info("persistence").contains("rdb_last_bgsave_status:err");
    eventually(Duration::from_secs(20), failed);
    assert_finds(&server.url(), "redis-cannot-save");
}

#[test]
fn a_replica_in_the_place_of_a_master_is_found_and_no_lock_works_there() {
    let master = Server::start();
    let port = master.port().to_string();
    let replica = Server::builder().args(&["--replicaof", "127.0.0.1", &port]).start();
    let found = examine(&replica.url());
    assert!(ids(&found).contains(&"redis-replica"), "{:#?}", found.findings);
}

#[test]
fn replicas_that_are_missing_or_silent_are_found() {
    let master = Server::start();
    let url = master.url() + "?replicas=1";
    assert_finds(&url, "redis-few-replicas");
    let port = master.port().to_string();
    let replica = Server::builder().args(&["--replicaof", "127.0.0.1", &port]).start();
    eventually(Duration::from_secs(20), || master.info("replication").contains("state=online"));
    assert!(!ids(&examine(&url)).contains(&"redis-few-replicas"));
    replica.stop();
    eventually(Duration::from_secs(30), || ids(&examine(&url)).contains(&"redis-replica-lags"));
    replica.cont();
}

#[test]
fn a_command_that_was_renamed_is_found() {
    let server = Server::builder().args(&["--rename-command", "PEXPIRE", ""]).start();
    let found = examine(&server.url());
    let missing = found.findings.iter().find(|it| it.id == "redis-command-missing").unwrap();
    assert!(missing.what.ends_with(": pexpire"), "{}", missing.what);
}

#[test]
fn rights_that_are_missing_are_found_with_the_rule_that_mends_them() {
    let server = Server::start();
    let allow = |rules: &[&str]| {
        let user = ["ACL", "SETUSER", "clerk", "reset", "on", ">pw"];
        server.cmd(&[&user, rules].concat());
        let url = format!("redis://clerk:pw@127.0.0.1:{}", server.port());
        let checkup = Checkup::default().lock("stock:doctor");
        open(&url).examine(&checkup).unwrap()
    };
    let all = ["~stock:*", "~leasehold:*", "&leasehold:wake:*", "+@all"];
    assert_eq!(ids(&allow(&all)), ["redis-forgets"]);
    for (rules, id, mend) in [
        (&["-pexpire"][..], "redis-rights", "ACL SETUSER clerk +pexpire"),
        (&["-evalsha", "-pttl"], "redis-rights", "ACL SETUSER clerk +evalsha +pttl"),
        (&["resetkeys", "~stock:*"], "redis-rights", "ACL SETUSER clerk ~leasehold:{stock:doctor}"),
        (&["-setrange", "-zcard"], "redis-lesser-rights", "ACL SETUSER clerk +setrange +zcard"),
        (&["-zadd"], "redis-lesser-rights", "ACL SETUSER clerk +zadd"),
        (&["resetchannels"], "redis-lesser-rights", "ACL SETUSER clerk &leasehold:wake:*"),
        (&["-info", "-scan"], "redis-hidden", "ACL SETUSER clerk +info +scan"),
    ] {
        let found = allow(&[&all, rules].concat());
        let finding = found.findings.iter().find(|it| it.id == id);
        let finding = finding.unwrap_or_else(|| panic!("{rules:?}: {:#?}", found.findings));
        assert_eq!(finding.advice, mend, "{rules:?}");
    }
}

/// The user of docs/operate/rights.md, word for word, lacks no right; it may not look at settings, but at INFO.
#[test]
fn the_user_of_the_guide_has_the_rights() {
    let page = include_str!("../../../docs/operate/rights.md");
    let server = Server::start();
    for line in page.lines().filter(|line| line.starts_with("ACL SETUSER app")) {
        server.cmd(&line.split(' ').collect::<Vec<_>>());
    }
    let url = format!("redis://app:secret@127.0.0.1:{}", server.port());
    let checkup = Checkup::default().lock("stock:doctor");
    let found = open(&url).examine(&checkup).unwrap();
    assert_eq!(ids(&found), ["redis-forgets", "redis-hidden"], "{:#?}", found.findings);
}

#[test]
fn keys_that_no_lock_leaves_are_found() {
    let server = Server::start();
    server.cmd(&["SET", "leasehold:{stuck}", "1"]);
    assert_finds(&server.url(), "redis-stuck");
    server.cmd(&["FLUSHALL"]);
    server.cmd(&["SET", "stock", "an application's"]);
    server.cmd(&["SET", "leasehold:{stock}", "1", "PX", "60000"]);
    assert_finds(&server.url(), "redis-foreign");
    server.cmd(&["FLUSHALL"]);
    server.cmd(&["SET", "lock*:stock", "an application's"]);
    assert_finds(&(server.url() + "?prefix=lock%2A:"), "redis-foreign");
    assert_eq!(ids(&examine(&server.url())), ["redis-forgets"]);
}

/// What another library leaves under a name, as these commands.
const OTHERS: [&[&[&str]]; 3] = [
    &[&["SET", "{shop}:1", "a value of its own", "PX", "60000"]],
    // As uuid4().hex has it.
    &[&["SET", "{shop}:1", "0f8fad5bd9cb469fa16570867728950e", "PX", "60000"]],
    &[&["HSET", "{shop}:1", "a thread", "1"], &["PEXPIRE", "{shop}:1", "60000"]],
];

#[test]
fn a_lock_that_another_library_has_is_a_note() {
    let server = Server::start();
    let client = open(&server.url());
    for commands in OTHERS {
        server.cmd(&["FLUSHALL"]);
        client.lock("{shop}:1").acquire().unwrap().release().unwrap();
        assert_eq!(ids(&examine(&server.url())), ["redis-forgets"]);
        for command in commands {
            server.cmd(command);
        }
        let found = examine(&server.url());
        assert_eq!(ids(&found), ["redis-forgets", "redis-foreign-holder"]);
        assert!(found.is_fit() && found.findings[1].what.ends_with(", as {shop}:1"), "{found:#?}");
    }
    // Under a prefix every key is a name, whether or not it was ever locked.
    server.cmd(&["FLUSHALL"]);
    server.cmd(&["SET", "lock:stock", "another library's", "PX", "60000"]);
    assert_eq!(ids(&examine(&server.url())), ["redis-forgets"]);
    assert_finds(&(server.url() + "?prefix=lock:"), "redis-foreign-holder");
}

#[test]
fn no_lock_of_this_library_is_taken_for_one_of_another() {
    let server = Server::start();
    let client = open(&(server.url() + "?prefix=lock:"));
    let take = |name| client.lock(name).ttl(Duration::from_secs(60)).acquire().unwrap();
    let _held = take("held");
    let _detached = take("detached").detach().unwrap();
    let attached = take("attached").detach().unwrap();
    let _attached = client.lock("attached").attach(attached.0, attached.1).unwrap();
    // Left taken for longer than its side key lasts; of one of them a waiter has made another.
    take("old").let_expire().unwrap();
    server.cmd(&["DEL", "leasehold:{lock:old}"]);
    take("old too").let_expire().unwrap();
    server.cmd(&["SET", "leasehold:{lock:old too}", "1 0 0 0", "PX", "60000"]);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Names that change hands all the time.
        for _ in 0..2 {
            scope.spawn(|| {
                let client = open(&(server.url() + "?prefix=lock:"));
                let names: Vec<_> = (0..50).map(|number| format!("busy:{number}")).collect();
                for name in names.iter().cycle() {
                    client.lock(name).acquire().unwrap().release().unwrap();
                    if done.load(std::sync::atomic::Ordering::Relaxed) {
                        break;
                    }
                }
            });
        }
        eventually(Duration::from_secs(20), || server.calls("evalsha") > 500);
        let found = [&*server.url(), &(server.url() + "?prefix=lock:")].map(examine);
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        found.iter().for_each(|found| assert_eq!(ids(found), ["redis-forgets"], "{found:#?}"));
    });
}

#[test]
fn what_a_guard_against_lost_data_waits_for_is_found_and_not_begun() {
    let server = Server::start();
    let guarded = server.url() + "?guard_data_loss=yes";
    assert_finds(&guarded, "redis-new");
    let marker = server.cmd(&["EXISTS", "leasehold:marker"]);
    assert_eq!(marker, redis::Value::Int(0), "an examination begins no wait");
    assert_healthy(&begun(&guarded));
    assert_finds(&server.url(), "redis-unguarded");
    assert_finds(&(guarded.clone() + "&max_ttl=5m"), "redis-max-ttl");
    let run = server.info("server");
    let run = run.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap().to_owned();
    let soon = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(60);
    for marker in [
        format!("{run} {} 60000", soon.as_micros()),
        format!("{} 0 60000", run.chars().rev().collect::<String>()),
    ] {
        server.cmd(&["SET", "leasehold:marker", &marker]);
        assert_finds(&guarded, "redis-quarantine");
        let kept: String =
            redis::from_redis_value(server.cmd(&["GET", "leasehold:marker"])).unwrap();
        assert_eq!(kept, marker, "an examination changes nothing");
    }
}

#[test]
fn a_server_that_stood_still_is_found() {
    let server = Server::start();
    server.cmd(&["DEBUG", "SLEEP", "0.4"]);
    let found = examine(&server.url());
    assert!(found.findings.iter().any(|it| it.id == "redis-stalls"), "{:#?}", found.findings);
}

#[test]
fn answers_that_are_slow_are_found() {
    let server = Server::start();
    let mut proxy = Proxy::start(server.port());
    proxy.set(Mode::DelayRequests(Duration::from_millis(300)));
    let client = Client::open(&server.url_through(proxy.port())).unwrap();
    assert!(ids(&client.examine(&Checkup::default()).unwrap()).contains(&"slow"));
}

#[test]
fn a_clock_that_goes_too_fast_is_found() {
    let server = Server::builder().clocked().start();
    let url = server.url();
    std::thread::scope(|scope| {
        let examined = scope.spawn(|| examine(&url));
        let mut shift = Duration::ZERO;
        while !examined.is_finished() {
            shift += Duration::from_millis(20);
            server.shift_clock(Offset::Ahead(shift));
            std::thread::sleep(Duration::from_millis(20));
        }
        let found = examined.join().unwrap();
        assert!(ids(&found).contains(&"clock-drifts"), "{:#?}", found.findings);
    });
}

#[test]
fn a_server_that_is_open_to_everybody_is_a_note() {
    let Some(namespace) = Namespace::create_or_skip() else { return };
    let server = Server::builder().behind(&namespace).start();
    assert_ne!(server.host(), Ipv4Addr::LOCALHOST);
    assert_finds(&server.url(), "redis-open");
}

#[test]
fn a_lock_that_is_taken_is_a_note() {
    let server = Server::start();
    let client = open(&server.url());
    let _held = client.lock("leasehold-doctor").acquire().unwrap();
    assert_finds(&server.url(), "lock-taken");
    let found = client.examine(&Checkup::default().read_only()).unwrap();
    assert_eq!(ids(&found), ["redis-forgets"]);
}

#[test]
fn a_lock_that_does_not_work_is_found() {
    let server = Server::start();
    server.cmd(&["RPUSH", "leasehold-doctor", "no lock"]);
    assert_finds(&server.url(), "lock-failed");
}
