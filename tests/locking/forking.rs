//! A forked child owns nothing, disturbs nothing, and can begin anew.

use std::io::Write;
use std::os::fd::AsFd;
use std::time::Duration;

use crate::stores::{LIMIT, Store, holder, ms, on_each_store, open, secs};
use kit::futures::{Futures, block_on};
use kit::{Child, Server, child, eventually};
use leasehold::{Acquiring, Client, ErrorKind, Events, Lease, Lock};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

on_each_store!(
    c8_a_forked_child_is_refused_everything_and_can_begin_anew,
    c8_the_parent_loses_nothing_by_forking,
    c8_children_open_what_the_parent_has_not,
    c8_children_go_on_with_a_client_that_reopens,
    c8_a_child_that_reopened_outlives_its_parent,
);

fn kind<T>(result: Result<T, leasehold::Error>) -> ErrorKind {
    result.err().expect("an error").kind()
}

/// Runs `work` in a forked child and tells whether it came to its end without a panic. Only used
/// in a process that plays a role: the threads of a test runner are not to be forked away.
#[allow(unsafe_code)]
pub(crate) fn in_a_fork(work: impl FnOnce()) -> bool {
    // SAFETY: the child calls into the library, the allocator and the standard output, all of
    // which cope with having been forked away from other threads: glibc's allocator by its own
    // handlers, the library by design (which is what is tested), and nobody else is writing to
    // the output. It ends by `_exit`, so nothing of the parent is torn down twice.
    match unsafe { fork() }.unwrap() {
        ForkResult::Parent { child } => {
            // What the child makes away with stays as it was in here.
            std::mem::forget(work);
            let mut status = None;
            eventually(LIMIT, || {
                let flags = Some(nix::sys::wait::WaitPidFlag::WNOHANG);
                match waitpid(child, flags).unwrap() {
                    WaitStatus::StillAlive => false,
                    ended => {
                        status = Some(ended);
                        true
                    }
                }
            });
            status == Some(WaitStatus::Exited(child, 0))
        }
        ForkResult::Child => {
            // One that hangs shall not outlive its parent for long.
            nix::unistd::alarm::set(60);
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_ok();
            let _ = std::io::stdout().flush();
            // SAFETY: ends the process at once, without running anybody's handlers.
            unsafe { nix::libc::_exit(i32::from(!done)) }
        }
    }
}

struct Inherited {
    client: Client,
    lock: Lock,
    lease: Lease,
    other: Lease,
    attached: Lease,
    events: Events,
    /// One that waits, one that has its lock and does not know yet, and one that has not begun.
    futures: Futures<Acquiring>,
}

fn inherit(url: &str) -> Inherited {
    let client = open(url);
    let lock = client.lock("n").ttl(ms(3000));
    let (token, fence) = client.lock("handed on").acquire().unwrap().detach().unwrap();
    let attached = client.lock("handed on").attach(token, fence).unwrap();
    let (lease, other) = (lock.acquire().unwrap(), client.lock("m").acquire().unwrap());
    let events = client.events().unwrap();
    lease.on_lost(|_| child::say("the parent's was called")).unwrap();
    let mut futures = Futures::default();
    for name in ["n", "future", "late"] {
        futures.add(client.lock(name).wait_forever().acquire_async());
    }
    assert!(futures.poll(0).is_none() && futures.poll(1).is_none());
    assert_eq!(futures.woken(LIMIT), 1);
    Inherited { client, lock, lease, other, attached, events, futures }
}

/// Everything that a child could try with what it has inherited.
fn misuse(inherited: Inherited) {
    let Inherited { client, lock, lease, other, attached, events, mut futures } = inherited;
    assert_eq!(lease.remaining(), Duration::ZERO);
    assert!(!lease.is_valid());
    assert_eq!(kind(lock.try_acquire()), ErrorKind::Forked);
    assert_eq!(kind(lock.acquire()), ErrorKind::Forked);
    assert_eq!(kind(lock.clone().wait_forever().acquire_unless(|| false)), ErrorKind::Forked);
    assert_eq!(kind(client.lock("another").acquire()), ErrorKind::Forked);
    assert_eq!(kind(lock.inspect()), ErrorKind::Forked);
    assert_eq!(kind(lock.attach(lease.token(), lease.fence())), ErrorKind::Forked);
    assert_eq!(kind(lease.extend()), ErrorKind::Forked);
    assert_eq!(kind(lease.on_lost(|_| child::say("the child's was called"))), ErrorKind::Forked);
    lease.forget_on_lost();
    assert_eq!(kind(lease.release()), ErrorKind::Forked);
    assert_eq!(kind(other.let_expire_in(secs(1))), ErrorKind::Forked);
    for number in 0..3 {
        assert_eq!(kind(futures.poll(number).expect("it is over")), ErrorKind::Forked);
    }
    assert_eq!(kind(block_on(lock.acquire_async(), LIMIT)), ErrorKind::Forked);
    assert_eq!(kind(client.ping()), ErrorKind::Forked);
    assert_eq!(kind(client.events()), ErrorKind::Forked);
    assert_eq!(kind(events.next()), ErrorKind::Forked);
    assert_eq!(kind(events.try_next()), ErrorKind::Forked);
    assert_eq!(events.dropped(), 0);
    let _ = events.as_fd();
    assert_eq!(client.counters(), leasehold::Counters::default());
    assert_eq!(kind(client.close()), ErrorKind::Forked);
    let _ = format!("{client:?} {lock:?} {attached:?} {events:?}");
    drop((attached, events, lock, client.clone(), client));
}

/// Forks once while the parent's threads are busy with the client, and says how it went.
fn forker(args: &[String]) {
    let inherited = inherit(&args[0]);
    child::say("ready");
    child::hear();
    let url = args[0].clone();
    let busy = inherited.client.clone();
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while args.len() > 1 && !over.load(std::sync::atomic::Ordering::Relaxed) {
                busy.lock("busy").acquire().unwrap().release().unwrap();
            }
        });
        let well = in_a_fork(|| {
            misuse(inherited);
            if args.len() > 1 {
                if url.starts_with("sqlite:") || url.starts_with("memory:") {
                    // It would share locks that it does not have, and hold what others hold.
                    return assert_eq!(kind(Client::open(&url)), ErrorKind::Storage);
                }
                let client = open(&url);
                assert!(client.lock("n").try_acquire().unwrap().is_none(), "the parent has it");
                let events = client.events().unwrap();
                let lease = client.lock("child's own").ttl(secs(3)).acquire().unwrap();
                eventually(LIMIT, || client.counters().renewed > 0);
                lease.release().unwrap();
                client.close().unwrap();
                // Behind whatever a busy machine had it told before.
                let end = std::iter::repeat_with(|| events.next()).find_map(Result::err);
                assert_eq!(end.map(|error| error.kind()), Some(ErrorKind::Closed));
            }
        });
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        child::say(&format!("child ended well: {well}"));
    });
    // Holds on until it is killed.
    child::hear();
}

/// In a program in Rust, SQLite is shared with all of it, and no child opens a file once its parent has.
/// (The C library has one of its own; Cargo's features make these tests a part of both.) In no language
/// does a child go on with a store in its parent's memory.
fn goes_on(store: &Store) -> bool {
    let has_own_sqlite = cfg!(feature = "capi");
    !matches!(store, Store::Memory(_)) && (has_own_sqlite || !matches!(store, Store::File(_)))
}

/// Its child is refused the store, with what to do, and disturbs nobody.
fn refused(args: &[String]) {
    let client = open(&args[0]);
    client.reopen_after_fork();
    let lock = client.lock("n");
    let lease = lock.acquire().unwrap();
    assert!(in_a_fork(|| {
        let again = Client::open(&args[0]).map(drop);
        for refused in [lock.try_acquire().map(drop), again] {
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Storage);
            let what = match args[0].starts_with("memory:") {
                true => "; make one in the children only, or share a file (sqlite:/path/to/file)",
                false => "; open clients on SQLite files in the children only",
            };
            assert!(error.detail().ends_with(what), "{error}");
        }
    }));
    lease.extend().unwrap();
    lease.release().unwrap();
    child::say("all went well");
}

pub(crate) const ROLES: kit::child::Roles = &[
    ("forker", forker),
    ("refused", refused),
    ("parent", parent),
    ("pre_fork", pre_fork),
    ("reopener", reopener),
    ("outlived", outlived),
    ("hasty", hasty),
];

fn c8_a_forked_child_is_refused_everything_and_can_begin_anew(store: &Store) {
    let mut forker = Child::start("forker", &[&store.url(), "begin anew"]);
    assert_eq!(forker.line(LIMIT), "ready");
    forker.tell("fork");
    assert_eq!(forker.line(LIMIT * 2), "child ended well: true");
    forker.kill();
}

/// Children may share a file that the parent has not opened.
fn pre_fork(args: &[String]) {
    for _ in 0..2 {
        assert!(in_a_fork(|| {
            let client = open(&args[0]);
            client.lock("n").acquire().unwrap().release().unwrap();
        }));
    }
    open(&args[0]).lock("n").acquire().unwrap().release().unwrap();
    child::say("done");
}

fn c8_children_open_what_the_parent_has_not(store: &Store) {
    let mut parent = Child::start("pre_fork", &[&store.url()]);
    assert!(parent.wait(LIMIT).success());
    assert_eq!(parent.rest(LIMIT), ["done"]);
}

/// Forks again and again, each child dropping what it inherited, and holds on all the while.
fn parent(args: &[String]) {
    let client = open(&args[0]);
    let events = client.events().unwrap();
    let lease = client.lock("n").ttl(ms(2000)).acquire().unwrap();
    for _ in 0..5 {
        let (client, events, lease) = (&client, &events, &lease);
        assert!(in_a_fork(|| {
            assert!(!lease.is_valid());
            assert_eq!(kind(lease.extend()), ErrorKind::Forked);
            assert_eq!(kind(events.try_next()), ErrorKind::Forked);
            assert_eq!(kind(client.close()), ErrorKind::Forked);
        }));
        assert!(lease.is_valid());
        client.lock("m").acquire().unwrap().release().unwrap();
    }
    let renewed = client.counters().renewed;
    eventually(LIMIT, || client.counters().renewed > renewed);
    assert_eq!(events.try_next().unwrap(), None);
    lease.release().unwrap();
    client.close().unwrap();
    child::say("lost nothing");
}

fn c8_the_parent_loses_nothing_by_forking(store: &Store) {
    let mut parent = Child::start("parent", &[&store.url()]);
    assert_eq!(parent.line(LIMIT), "lost nothing");
    assert!(parent.wait(LIMIT).success());
    assert!(holder(&store.client(), "n").is_none());
}

/// What a child can do with a client that reopens, and a lock of it that its parent holds.
fn go_on(client: &Client, lock: &Lock, own: &str) {
    assert!(lock.try_acquire().unwrap().is_none(), "an ancestor has it");
    // The keeper connects first, for which a lease may be too short on a busy machine.
    eventually(LIMIT, || {
        let lease = client.lock(own).ttl(ms(300)).acquire().unwrap();
        while lease.is_valid() && client.counters().renewed == 0 {
            std::thread::sleep(ms(5));
        }
        // Waited for: that it came late is an event of before what follows.
        let _ = lease.release();
        client.counters().renewed > 0
    });
    let events = client.events().unwrap();
    let lease = client.lock(own).acquire().unwrap();
    lease.release().unwrap();
    client.lock("busy").acquire().unwrap().release().unwrap();
    block_on(client.lock(own).acquire_async(), LIMIT).unwrap().release().unwrap();
    let once = lock.clone().wait(Duration::ZERO);
    assert_eq!(kind(block_on(once.acquire_async(), LIMIT)), ErrorKind::Timeout);
    assert_eq!(events.try_next().unwrap(), None);
}

/// Forks while its threads are busy with a client that reopens.
fn reopener(args: &[String]) {
    let Inherited { client, lock, lease, events, mut futures, .. } = inherit(&args[0]);
    client.reopen_after_fork();
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                client.lock("busy").acquire().unwrap().release().unwrap();
            }
        });
        for _ in 0..10 {
            let well = in_a_fork(|| {
                assert_eq!(client.counters(), leasehold::Counters::default());
                assert_eq!(kind(events.try_next()), ErrorKind::Forked);
                assert_eq!(kind(lease.extend()), ErrorKind::Forked);
                assert_eq!(kind(futures.poll(0).expect("it is over")), ErrorKind::Forked);
                futures.stop(1);
                let late = futures.poll(2).unwrap_or_else(|| futures.next(LIMIT).1);
                late.unwrap().release().unwrap();
                go_on(&client, &lock, "child");
                let mine = client.lock("mine").acquire().unwrap();
                assert!(in_a_fork(|| {
                    assert_eq!(kind(mine.extend()), ErrorKind::Forked);
                    go_on(&client, &client.lock("mine"), "grandchild");
                    client.close().unwrap();
                    assert_eq!(kind(lock.try_acquire()), ErrorKind::Closed);
                }));
                mine.release().unwrap();
            });
            assert!(well && lease.is_valid());
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(futures.poll(1).expect("it has its lock").unwrap().is_valid());
        lease.release().unwrap();
        futures.next(LIMIT).1.unwrap().release().unwrap();
    });
    client.close().unwrap();
    assert!(in_a_fork(|| assert_eq!(kind(lock.try_acquire()), ErrorKind::Closed)));
    child::say("all went well");
}

fn c8_children_go_on_with_a_client_that_reopens(store: &Store) {
    let role = if goes_on(store) { "reopener" } else { "refused" };
    let mut reopener = Child::start(role, &[&store.url()]);
    assert_eq!(reopener.line(LIMIT * 2), "all went well");
    assert!(reopener.wait(LIMIT).success());
}

/// A thread of each child uses the client for the first time while another one closes it.
fn hasty(args: &[String]) {
    let client = open(&args[0]);
    client.reopen_after_fork();
    let lock = client.lock("n");
    for _ in 0..200 {
        assert!(in_a_fork(|| {
            let start = std::sync::Barrier::new(2);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    start.wait();
                    let _ = lock.try_acquire();
                });
                start.wait();
                client.close().unwrap();
            });
            assert_eq!(kind(lock.try_acquire()), ErrorKind::Closed);
        }));
    }
    child::say("all are closed");
}

#[test]
fn c14_a_child_may_close_a_client_as_it_first_uses_it() {
    let server = Server::start();
    let hasty = Child::start("hasty", &[&server.url()]);
    assert_eq!(hasty.line(LIMIT * 2), "all are closed");
}

const OUTLIVED: Duration = secs(3);

/// Its child holds on until somebody has the lock "stop".
fn outlived(args: &[String]) {
    let client = open(&args[0]);
    client.reopen_after_fork();
    let (lock, stop) = (client.lock("n").ttl(OUTLIVED), client.lock("stop"));
    lock.acquire().unwrap().release().unwrap();
    // SAFETY: as for `in_a_fork`.
    #[allow(unsafe_code)]
    if let ForkResult::Child = unsafe { fork() }.unwrap() {
        nix::unistd::alarm::set(60);
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let lease = lock.acquire().unwrap();
            child::say("held");
            eventually(LIMIT, || stop.inspect().unwrap().holder.is_some());
            lease.release().unwrap();
        }));
        // SAFETY: as for `in_a_fork`.
        unsafe { nix::libc::_exit(i32::from(done.is_err())) }
    }
    child::hear();
    client.close().unwrap();
}

fn c8_a_child_that_reopened_outlives_its_parent(store: &Store) {
    if !goes_on(store) {
        return;
    }
    let mut parent = Child::start("outlived", &[&store.url()]);
    assert_eq!(parent.line(LIMIT), "held");
    parent.tell("go");
    assert!(parent.wait(LIMIT).success());
    let client = store.client();
    let fence = holder(&client, "n").unwrap().fence;
    std::thread::sleep(OUTLIVED + ms(500));
    assert_eq!(holder(&client, "n").unwrap().fence, fence, "it is renewed, for longer than a ttl");
    let _stop = client.lock("stop").acquire().unwrap();
    let lease = client.lock("n").acquire_within(LIMIT).unwrap();
    assert!(Some(lease.fence()) > fence);
}

#[test]
fn c8_a_forked_child_sends_nothing_and_leaves_the_leases_alone() {
    let server = Server::start();
    let mut forker = Child::start("forker", &[&server.url()]);
    assert_eq!(forker.line(LIMIT), "ready");
    let onlooker = open(&server.url());
    let before: Vec<_> =
        ["n", "m", "handed on"].map(|name| holder(&onlooker, name).unwrap()).into();
    // Another thread of the parent takes the place that its future waits in.
    let place = ["ZCARD", "leasehold:queue:{n}"];
    eventually(LIMIT, || server.cmd(&place) == redis::Value::Int(1));
    let mut watch = server.watch();
    forker.tell("fork");
    assert_eq!(forker.line(LIMIT), "child ended well: true");
    // The parent may have renewed, looked and asked from its place meanwhile; the child has sent and
    // ended nothing.
    let sent = watch.client_commands();
    let parents = |command: &String| {
        let looks = command.starts_with("EVALSHA") && command.contains("\" \"2\" \"");
        let asks = command.contains("\"join ") && !command.contains("\"join 0\"");
        looks || asks || command.contains("\"grow\"") || command.starts_with("SCRIPT")
    };
    assert!(sent.iter().all(parents), "{sent:?}");
    for (name, before) in ["n", "m", "handed on"].iter().zip(before) {
        assert_eq!(holder(&onlooker, name).unwrap().fence, before.fence);
    }
    forker.kill();
}
