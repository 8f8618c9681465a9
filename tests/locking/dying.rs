//! What a process leaves behind that dies in the midst of its work: on a file, nothing but what was to
//! outlive it.

use std::time::Duration;

use crate::stores::{LIMIT, STALL, Store, holder, ms, open, secs};
use kit::{Child, child, eventually, unless_starved};
use leasehold::{Client, Config};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{ForkResult, Pid, fork};

/// Nobody here waits for its end.
const TTL: Duration = secs(300);

pub(crate) const ROLES: kit::child::Roles = &[("victim", victim)];

/// Takes the lock "n" and ends it as it was told, then does nothing until it is killed.
fn victim(args: &[String]) {
    let config = Config::from_url(&args[0]).unwrap().io_timeout(secs(10));
    let config = config.outlive(args[1] == "outlive");
    let client = Client::with_config(config).unwrap();
    let lease = client.lock("n").ttl(TTL).wait(LIMIT).acquire().unwrap();
    let fence = lease.fence();
    let (mut kept, mut forked) = (None, None);
    match &*args[1] {
        "hold" | "outlive" => kept = Some(lease),
        "abort" => {
            std::mem::forget(lease);
            child::say(&fence.to_string());
            child::hear();
            std::process::abort();
        }
        "forget" => std::mem::forget(lease),
        "fork" => {
            // SAFETY: the child makes system calls only, and ends by `_exit`.
            #[allow(unsafe_code)]
            match unsafe { fork() }.unwrap() {
                ForkResult::Child => {
                    nix::unistd::alarm::set(60);
                    nix::unistd::pause();
                    unsafe { nix::libc::_exit(0) }
                }
                ForkResult::Parent { child } => forked = Some(child),
            }
            kept = Some(lease);
        }
        "detach" => drop(lease.detach().unwrap()),
        "attach" => {
            let (token, fence) = lease.detach().unwrap();
            let attached = client.lock("n").ttl(TTL).attach(token, fence).unwrap();
            attached.extend().unwrap();
            kept = Some(attached);
        }
        "let expire" => lease.let_expire().unwrap(),
        "let expire in" => lease.let_expire_in(TTL).unwrap(),
        other => panic!("{other}"),
    }
    child::say(&fence.to_string());
    if let Some(forked) = forked {
        child::say(&forked.to_string());
    }
    child::hear();
    drop(kept);
}

fn start(store: &Store, way: &str) -> (Child, u64) {
    let child = Child::start("victim", &[&store.url(), way]);
    let fence = child.line(LIMIT).parse().unwrap();
    (child, fence)
}

#[test]
fn a_holder_that_is_killed_keeps_those_who_wait_no_longer_than_their_next_look() {
    let store = Store::file();
    let client = store.client();
    unless_starved(STALL, || {
        for _ in 0..20 {
            let (mut holder, its) = start(&store, "hold");
            let waits = client.counters().busy;
            std::thread::scope(|scope| {
                let waiter = scope.spawn(|| {
                    let next = client.lock("n").ttl(TTL).acquire_within(LIMIT).unwrap();
                    (std::time::Instant::now(), next)
                });
                eventually(LIMIT, || client.counters().busy > waits);
                let killed = std::time::Instant::now();
                holder.kill();
                let (taken, next) = waiter.join().unwrap();
                assert!(taken - killed < ms(150), "{:?}", taken - killed);
                assert!(next.fence() > its);
                next.release().unwrap();
            });
        }
    });
}

#[test]
fn whoever_dies_holds_nothing_whatever_killed_it() {
    let store = Store::file();
    let client = store.client();
    for (way, ends) in [("hold", "kill"), ("forget", "kill"), ("abort", "itself")] {
        let (mut victim, its) = start(&store, way);
        assert_eq!(holder(&client, "n").unwrap().fence, Some(its));
        if ends == "kill" {
            victim.kill();
        } else {
            victim.tell("end");
            victim.rest(LIMIT);
        }
        let next = client.lock("n").try_acquire().unwrap();
        let next = next.unwrap_or_else(|| panic!("{way}: the dead have it"));
        assert!(next.fence() > its);
        next.release().unwrap();
    }
}

#[test]
fn c1_who_is_stopped_is_alive() {
    let store = Store::file();
    let client = store.client();
    let (mut victim, its) = start(&store, "hold");
    victim.stop();
    for _ in 0..20 {
        assert!(client.lock("n").try_acquire().unwrap().is_none());
        std::thread::sleep(ms(10));
    }
    assert_eq!(holder(&client, "n").unwrap().fence, Some(its));
    victim.kill();
    assert!(client.lock("n").try_acquire().unwrap().is_some());
}

#[test]
fn what_was_left_taken_or_handed_on_outlives_its_process() {
    for way in ["detach", "attach", "let expire", "let expire in", "outlive"] {
        let store = Store::file();
        let client = store.client();
        let (mut victim, its) = start(&store, way);
        victim.kill();
        let left = holder(&client, "n").unwrap_or_else(|| panic!("{way}: it is free"));
        assert_eq!(left.fence, Some(its), "{way}");
        assert!(left.ttl > TTL / 2, "{way}: {left:?}");
        assert!(client.lock("n").try_acquire().unwrap().is_none(), "{way}");
    }
}

/// It may do the work of its parent, which did not even call exec.
#[test]
fn a_forked_child_keeps_the_lock_of_its_parent_taken_while_it_lives() {
    let store = Store::file();
    let client = store.client();
    let (mut victim, its) = start(&store, "fork");
    let forked = Pid::from_raw(victim.line(LIMIT).parse().unwrap());
    victim.kill();
    assert_eq!(holder(&client, "n").unwrap().fence, Some(its));
    kill(forked, Signal::SIGKILL).unwrap();
    eventually(LIMIT, || holder(&client, "n").is_none());
}

/// Several clients of a process, in several threads, of which one is closed.
#[test]
fn c1_clients_of_one_process_do_not_take_each_other_for_dead() {
    let store = Store::file();
    let clients: Vec<Client> = (0..4).map(|_| open(&store.url())).collect();
    let held = clients[0].lock("n").ttl(TTL).try_acquire().unwrap().unwrap();
    std::thread::scope(|scope| {
        for client in &clients {
            scope.spawn(|| {
                for _ in 0..10 {
                    assert!(client.lock("n").try_acquire().unwrap().is_none());
                }
            });
        }
    });
    clients[1].close().unwrap();
    assert!(clients[2].lock("n").try_acquire().unwrap().is_none());
    held.release().unwrap();
}
