//! What can be wrong with the process itself: signals, and no descriptors left.

use std::fs::{self, File};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kit::child::{hear, say};
use kit::*;
use leasehold::{Client, Error, ErrorKind};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use redis::Value;

const LIMIT: Duration = Duration::from_secs(20);

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

pub(crate) const ROLES: kit::child::Roles = &[
    ("alarmed", alarmed),
    ("piped", piped),
    ("starved", starved),
    #[cfg(feature = "sqlite")]
    ("cramped", cramped),
];

/// Runs a role to its end; a role that panics is no success.
#[track_caller]
fn assert_plays(role: &str, args: &[&str]) {
    let mut child = Child::start(role, args);
    child.line(LIMIT * 2);
    assert!(child.wait(LIMIT).success());
}

static ALARMS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count_alarm(_: libc::c_int) {
    ALARMS.fetch_add(1, Ordering::Relaxed);
}

/// Every millisecond a SIGALRM without SA_RESTART for each other thread of this process.
fn storm() {
    let action =
        SigAction::new(SigHandler::Handler(count_alarm), SaFlags::empty(), SigSet::empty());
    #[allow(unsafe_code)]
    // SAFETY: the handler only adds to an atomic, which is allowed in a signal handler.
    unsafe { sigaction(Signal::SIGALRM, &action) }.unwrap();
    std::thread::spawn(|| {
        let own = nix::unistd::gettid();
        loop {
            for task in fs::read_dir("/proc/self/task").unwrap().map_while(Result::ok) {
                let thread: i32 = task.file_name().to_str().unwrap().parse().unwrap();
                if thread != own.as_raw() {
                    #[allow(unsafe_code)]
                    // SAFETY: tgkill takes numbers only, and its handler is set above. A thread
                    // that has ended meanwhile is an error, which is of no interest.
                    unsafe {
                        libc::syscall(libc::SYS_tgkill, std::process::id(), thread, libc::SIGALRM)
                    };
                }
            }
            std::thread::sleep(ms(1));
        }
    });
}

fn alarmed(args: &[String]) {
    let [url, stopped_url, tls_url] = args else { panic!("{args:?}") };
    storm();
    let client = Client::open(&format!("{url}?io_timeout=1s")).unwrap();
    let events = client.events().unwrap();
    let held = client.lock("held").ttl(ms(600)).try_acquire().unwrap().unwrap();
    let start = Instant::now();
    let lock = client.lock("lock");
    let mut cycles = 0;
    while start.elapsed() < ms(1500) {
        let lease = lock.try_acquire().unwrap().unwrap();
        lease.extend().unwrap();
        lease.release().unwrap();
        cycles += 1;
    }
    assert!(cycles > 20, "{cycles}");
    if !tls_url.is_empty() {
        let lease = Client::open(tls_url).unwrap().lock("tls").try_acquire().unwrap().unwrap();
        lease.release().unwrap();
    }
    let busy = Stopwatch::start();
    let error = client.lock("held").acquire_within(ms(400)).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    busy.assert_at_least(ms(390));
    busy.assert_at_most(ms(400), ms(50));

    // Deadlines are the same, neither earlier nor later.
    let silent = Client::open(&format!("{stopped_url}?io_timeout=400ms")).unwrap();
    let hole = BlackHole::open();
    let nowhere = Client::open(&format!("{}?io_timeout=400ms", hole.url())).unwrap();
    for client in [silent, nowhere] {
        let watch = Stopwatch::start();
        client.lock("lock").try_acquire().map(drop).unwrap_err();
        watch.assert_at_least(ms(390));
        watch.assert_at_most(ms(400), ms(50));
    }
    assert!(held.is_valid() && client.counters().renewed > 3);
    assert_eq!(client.counters().unknown, 0);
    assert_eq!(events.try_next().unwrap(), None);
    held.release().unwrap();
    assert!(ALARMS.load(Ordering::Relaxed) > 1000, "{ALARMS:?}");
    say("done");
}

#[test]
fn c7_a_storm_of_signals_changes_nothing() {
    unless_starved(STALL, || {
        let stopped = Server::start();
        stopped.stop();
        if cfg!(feature = "tls") {
            let server = Server::builder().tls().start();
            assert_plays("alarmed", &[&server.url(), &stopped.url(), &server.tls_url()]);
        } else {
            assert_plays("alarmed", &[&Server::start().url(), &stopped.url(), ""]);
        }
        stopped.cont();
    });
}

/// A host program that leaves SIGPIPE as the system has it: to die of it.
fn piped(args: &[String]) {
    let [url] = args else { panic!("{args:?}") };
    let action = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    #[allow(unsafe_code)]
    // SAFETY: no handler of ours runs.
    unsafe { sigaction(Signal::SIGPIPE, &action) }.unwrap();
    let client = Client::open(url).unwrap();
    let lock = client.lock("lock");
    for _ in 0..20 {
        lock.try_acquire().unwrap().unwrap().release().unwrap();
        say("kill");
        hear().unwrap();
    }
    say("done");
}

#[test]
fn c11_a_connection_that_the_server_closed_raises_no_sigpipe() {
    let server = Server::builder().unix().start();
    let mut child = Child::start("piped", &[&server.unix_url()]);
    while child.line(LIMIT) == "kill" {
        server.cmd(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        child.tell("killed");
    }
    assert!(child.wait(LIMIT).success());
}

fn starved(args: &[String]) {
    let [url] = args else { panic!("{args:?}") };
    let client = Client::open(&format!("{url}?io_timeout=400ms")).unwrap();
    let kept = client.lock("kept").ttl(ms(3000)).try_acquire().unwrap().unwrap();
    let [released, dropped] =
        ["released", "dropped"].map(|name| client.lock(name).try_acquire().unwrap().unwrap());
    #[allow(unsafe_code)]
    // SAFETY: the struct is valid for the length of the call, which keeps no pointer to it.
    let limited = unsafe {
        libc::setrlimit(libc::RLIMIT_NOFILE, &libc::rlimit { rlim_cur: 64, rlim_max: 64 })
    };
    assert_eq!(limited, 0);
    let mut files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
    }
    // No connection but the one there is can be made, and it can serve one at a time.
    let other = Client::open(&format!("{url}?io_timeout=400ms")).unwrap();
    let lock = other.lock("lock");
    for call in [&|| lock.try_acquire().map(drop), &|| lock.acquire().map(drop)]
        as [&dyn Fn() -> Result<(), Error>; 2]
    {
        // A Stopwatch would need a descriptor to make allowance for a busy machine.
        let start = Instant::now();
        let error = call().unwrap_err();
        assert!(start.elapsed() < ms(800), "{:?}", start.elapsed());
        assert_eq!(error.kind(), ErrorKind::Exhausted, "{error}");
    }
    let renewed = client.counters().renewed;
    eventually(LIMIT, || client.counters().renewed >= renewed + 3);
    assert!(kept.is_valid());
    assert_eq!(client.counters().lost, 0);
    released.release().unwrap();
    drop(dropped);
    kept.release().unwrap();
    assert_eq!(client.counters().released_late, 0);
    drop(files);
    say("done");
}

#[test]
fn c7_without_descriptors_calls_fail_by_the_deadline_and_what_is_held_is_kept_and_given() {
    let server = Server::start();
    assert_plays("starved", &[&server.url()]);
    assert_eq!(server.cmd(&["EXISTS", "kept", "released", "dropped", "lock"]), Value::Int(0));
}

/// What writes beyond so many bytes of a file fails from now on.
#[cfg(feature = "sqlite")]
fn limit_files(most: u64) {
    #[allow(unsafe_code)]
    // SAFETY: the struct is valid for the length of the call, which keeps no pointer to it.
    let limited = unsafe {
        let limit = libc::rlimit { rlim_cur: most, rlim_max: libc::RLIM_INFINITY };
        libc::setrlimit(libc::RLIMIT_FSIZE, &limit)
    };
    assert_eq!(limited, 0);
}

/// The log is written with the commit, and not before.
#[cfg(feature = "sqlite")]
fn cramped(args: &[String]) {
    let [url] = args else { panic!("{args:?}") };
    let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    #[allow(unsafe_code)]
    // SAFETY: nothing is run at the signal.
    unsafe { sigaction(Signal::SIGXFSZ, &ignore) }.unwrap();
    let client = Client::open(&format!("{url}?io_timeout=400ms")).unwrap();
    let lease = client.lock("n").try_acquire().unwrap().unwrap();
    let fence = lease.fence();
    lease.release().unwrap();
    limit_files(1);
    let error = client.lock("n").try_acquire().map(drop).unwrap_err();
    limit_files(libc::RLIM_INFINITY);
    assert!(client.counters().unknown > 0, "{error}");
    // Whatever is left of it is given back.
    let lease = client.lock("n").acquire_within(LIMIT).unwrap();
    assert!(lease.fence() > fence);
    lease.release().unwrap();
    say("done");
}

#[cfg(feature = "sqlite")]
#[test]
fn c6_a_take_that_failed_while_a_file_committed_is_unknown_and_given_back() {
    let dir = tempfile::tempdir().unwrap();
    assert_plays("cramped", &[&format!("sqlite://{}/locks.db", dir.path().display())]);
}
