//! Many stores on one file, in threads and in processes.

use std::collections::HashSet;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::*;
use crate::store::sqlite::Cause;

const CONTENDERS: usize = 8;
const TURNS: usize = 12;

/// A waiter as the layer above makes it: joins, polls with its ticket after a random part of a
/// growing pause, and gives. Answers the fence.
fn turn(store: &SqliteStore, name: &[u8]) -> u64 {
    let (me, mut place) = (token(), 0);
    let longest = store.abilities().longest_pause;
    let mut pause = Duration::from_micros(500);
    loop {
        match store.join(name, me, place) {
            Reply::Granted { fence, .. } => {
                assert_eq!(store.give(name, me, fence), Reply::Given);
                return fence;
            }
            Reply::Busy { free_in, ticket, .. } => {
                place = ticket;
                let random = f64::from(getrandom::u32().unwrap()) / f64::from(u32::MAX);
                thread::sleep(pause.mul_f64(random).min(free_in));
                pause = (pause * 2).min(longest);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn c1_c2_two_never_hold_together_and_no_fence_comes_twice() {
    let ground = Ground::new();
    let inside = AtomicBool::new(false);
    let last = AtomicU64::new(0);
    let path = &ground.path();
    thread::scope(|scope| {
        for _ in 0..CONTENDERS {
            scope.spawn(|| {
                let store = super::open(path).unwrap();
                let mut taken = 0;
                while taken < TURNS {
                    let me = token();
                    let Reply::Granted { fence, .. } = store.try_take(b"name", me) else {
                        thread::yield_now();
                        continue;
                    };
                    assert!(!inside.swap(true, Ordering::SeqCst), "two inside");
                    assert!(last.swap(fence, Ordering::SeqCst) < fence, "a fence went back");
                    inside.store(false, Ordering::SeqCst);
                    assert_eq!(store.give(b"name", me, fence), Reply::Given);
                    taken += 1;
                }
            });
        }
    });
}

#[test]
fn threads_share_one_store() {
    let ground = Ground::new();
    let store = ground.store();
    let fences = Mutex::new(HashSet::new());
    thread::scope(|scope| {
        for _ in 0..CONTENDERS {
            scope.spawn(|| {
                for _ in 0..TURNS {
                    assert!(fences.lock().unwrap().insert(turn(&store, b"name")));
                }
            });
        }
    });
    assert_eq!(fences.into_inner().unwrap().len(), CONTENDERS * TURNS);
}

/// The file for which this test binary was started again.
const CHILD: &str = "KIT_CONTENDER";

#[test]
fn c1_c2_c10_processes_take_turns() {
    if let Some(path) = std::env::var_os(CHILD) {
        return contend(path.as_ref());
    }
    let ground = Ground::new();
    let (store, starter) = (ground.store(), token());
    fence(store.try_take(b"name", starter));
    let children: Vec<_> = (0..CONTENDERS)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "--nocapture", "--test-threads=1"])
                .arg("store::sqlite::tests::many::c1_c2_c10_processes_take_turns")
                .env(CHILD, ground.path())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let meddler = ground.meddler();
    until("all of them wait", || {
        let waiting: i64 =
            meddler.query_row("SELECT count(*) FROM waiter", [], |row| row.get(0)).unwrap();
        waiting == CONTENDERS as i64
    });
    assert_eq!(store.give(b"name", starter, 0), Reply::Given);
    let mut owners = Vec::new();
    for (number, child) in children.into_iter().enumerate() {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        let said = String::from_utf8(output.stdout).unwrap();
        let fences = said.lines().filter_map(|line| line.strip_prefix("fence "));
        owners.extend(fences.map(|fence| (fence.parse::<u64>().unwrap(), number)));
    }
    assert_eq!(owners.len(), CONTENDERS * TURNS);
    owners.sort_unstable();
    assert!(owners.windows(2).all(|pair| pair[0].0 < pair[1].0), "a fence came twice");
    // Until the first of them has had all its turns, they all ask all the time.
    let mut turns = [0; CONTENDERS];
    for (_, owner) in owners {
        turns[owner] += 1;
        if turns[owner] == TURNS {
            break;
        }
    }
    assert!(turns.iter().all(|turns| turns * 2 >= TURNS), "somebody starved: {turns:?}");
}

fn contend(path: &Path) {
    let store = super::open(path).unwrap();
    let fences: Vec<u64> = (0..TURNS).map(|_| turn(&store, b"name")).collect();
    // Its own line, whatever the harness has begun to write.
    println!();
    for fence in fences {
        println!("fence {fence}");
    }
}

/// Hundreds of threads that each opened it would leave the program no descriptors.
#[test]
fn c1_one_thread_opens_a_file_that_was_lost() {
    const THREADS: usize = 100;
    let ground = Ground::new();
    let store = ground.store();
    std::fs::remove_file(ground.path()).unwrap();
    store.watch(&|| ());
    let (barrier, is_over) = (std::sync::Barrier::new(THREADS), AtomicBool::new(false));
    let open_files = || {
        let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let target = |entry: std::fs::DirEntry| std::fs::read_link(entry.path()).ok();
        links
            .filter_map(target)
            .filter(|path| path.starts_with(ground.path().parent().unwrap()))
            .count()
    };
    let ask = |at: usize| {
        barrier.wait();
        store.join(format!("name{at}").as_bytes(), token(), 0)
    };
    let peak = thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut peak = 0;
            while !is_over.load(Ordering::SeqCst) {
                peak = peak.max(open_files());
            }
            peak
        });
        let threads: Vec<_> = (0..THREADS)
            .map(|at| {
                scope.spawn({
                    let ask = &ask;
                    move || ask(at)
                })
            })
            .collect();
        for one in threads {
            assert!(matches!(one.join().unwrap(), Reply::Granted { .. }));
        }
        is_over.store(true, Ordering::SeqCst);
        watch.join().unwrap()
    });
    assert!(peak < THREADS / 2, "{peak} descriptors");
}

#[test]
fn a_panic_leaves_no_transaction_that_others_would_wait_for() {
    let ground = Ground::new();
    let (one, other) = (ground.store(), ground.store());
    let opened = one.opened(false, Deadline::after(PATIENCE)).unwrap();
    let work = || {
        let panics = |_: &rusqlite::Connection, _| -> Result<(), Cause> { panic!("on purpose") };
        drop(opened.quick.change(Deadline::after(PATIENCE), panics));
    };
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err());
    assert!(matches!(other.join(b"n", token(), 0), Reply::Granted { .. }));
}
