//! Two clients, each behind a network of its own that fails at random: holds never overlap, fences
//! only grow, and at the end everything is free.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use leasehold::{Client, Lease};
use redis::Value;
use support::history::{judge, now};
use support::*;

const TTL: Duration = Duration::from_millis(300);

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Uses a lease for a while, and ends it in one of the ways there are.
fn hold(asked: Duration, lease: Lease, dice: &mut Dice) -> Hold {
    let mut hold = Hold::begin(asked, lease.fence());
    // Some of them are held to their end and beyond.
    let length = if dice.once_in(3) { TTL * 2 } else { dice.ms_below(25) };
    while hold.look(|| lease.is_valid()) && now() < hold.from + length {
        // Not in the long ones, which would never come to their end.
        if length < TTL && dice.once_in(8) {
            let _ = lease.extend();
        }
        std::thread::sleep(ms(1));
    }
    match dice.below(3) {
        0 => drop(lease),
        _ => drop(lease.release()),
    }
    hold
}

fn work(client: &Client, mut dice: Dice, holds: &Mutex<Vec<Hold>>, over: &AtomicBool) {
    let lock = client.lock("lock").ttl(TTL);
    while !over.load(Ordering::Relaxed) {
        let lock = lock.clone().renew(dice.below(2) == 0);
        let asked = now();
        let taken = match dice.below(3) {
            0 => lock.try_acquire(),
            _ => lock.acquire_timeout(ms(dice.below(400))).map(Some),
        };
        match taken {
            Ok(Some(lease)) => {
                let held = hold(asked, lease, &mut dice);
                holds.lock().unwrap().push(held);
            }
            Ok(None) => std::thread::sleep(ms(dice.below(5))),
            Err(error) => assert!(error.is_retriable(), "{error}"),
        }
    }
}

fn mode(dice: &mut Dice) -> Mode {
    let end = if dice.below(2) == 0 { End::Fin } else { End::Reset };
    match dice.below(12) {
        0 => Mode::SwallowReplies,
        1 => Mode::DelayRequests(ms(dice.below(350))),
        2 => Mode::DelayReplies(ms(dice.below(250))),
        3 => Mode::Silent,
        4 => Mode::Dribble(ms(dice.below(8))),
        5 | 6 => Mode::LoseReply(end),
        7 => Mode::CutRequest(dice.below(200) as usize),
        8 => Mode::HoldRequests,
        9 => Mode::Refuse,
        _ => Mode::Pass,
    }
}

#[test]
fn c1_c2_c6_holds_never_overlap_and_fences_grow_whatever_the_network_does() {
    let length = ms(if std::env::var_os("LEASEHOLD_LONG").is_some() { 90_000 } else { 8_000 });
    let mut dice = Dice::from_env("LEASEHOLD_SEED");
    let server = Server::start();
    let mut proxies = [(); 2].map(|()| Proxy::start(server.port()));
    let clients = [0, 1]
        .map(|at: usize| Client::open(&format!("{}?io_timeout=250ms", proxies[at].url())).unwrap());
    let (holds, over) = (Mutex::new(Vec::new()), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for client in clients.iter().flat_map(|client| [client; 3]) {
            let (dice, holds, over) = (dice.split(), &holds, &over);
            scope.spawn(move || work(client, dice, holds, over));
        }
        let end = Instant::now() + length;
        while Instant::now() < end {
            // The second network is the better one: somebody must be there to take what the other
            // relies on for too long.
            proxies[1].set(Mode::Pass);
            let proxy = &mut proxies[usize::from(dice.below(4) == 0)];
            let mut pause = ms(dice.below(60));
            match dice.below(10) {
                0 => proxy.close_all(End::Reset),
                1 => proxy.close_all(End::Fin),
                // What was held back lands long after its time.
                2 | 3 => proxy.deliver(),
                4 | 5 => {
                    // Most of the time passes so: late replies are what tempts a holder to
                    // rely on its lease for too long.
                    proxy.set(Mode::DelayReplies(ms(100 + dice.below(140))));
                    pause = ms(dice.below(500));
                }
                _ => proxy.set(mode(&mut dice)),
            }
            std::thread::sleep(pause);
        }
        over.store(true, Ordering::Relaxed);
        proxies.iter_mut().for_each(Proxy::deliver);
    });
    let ended = Instant::now();
    eventually(TTL * 2 + ms(500), || server.cmd(&["EXISTS", "lock"]) == Value::Int(0));
    println!("free {:?} after the end", ended.elapsed());

    let holds = holds.into_inner().unwrap();
    let wrong = judge(&holds);
    assert!(wrong.is_empty(), "{wrong:#?}");
    let unknown: u64 = clients.iter().map(|client| client.counters().unknown).sum();
    println!("{} holds, {unknown} unknown outcomes", holds.len());
    assert!(holds.len() > 15, "only {} holds", holds.len());
    assert!(unknown > 10, "only {unknown} unknown outcomes");
}
