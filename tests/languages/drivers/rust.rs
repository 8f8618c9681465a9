//! The driver of Rust; see README.md here.

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use leasehold::{Break, Client, Election, Error, Event, EventKind, Events, Lease, Lock};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork, pipe};

#[derive(Default)]
struct Things {
    url: String,
    client: Option<Client>,
    events: Option<Events>,
    locks: HashMap<String, Lock>,
    leases: HashMap<String, Lease>,
    calls: Option<(Sender<Event>, Receiver<Event>)>,
    candidate: Option<Election>,
}

/// Shared with the thread of what was begun; never locked while it waits.
type Shared = Arc<Mutex<Things>>;

const LIMIT: Duration = Duration::from_secs(20);

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

pub(crate) fn main() {
    let things = Shared::default();
    let mut begun: Option<JoinHandle<String>> = None;
    while let Some(line) = heard() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match words[0] {
            "begin" => {
                INTERRUPTED.store(false, Ordering::Relaxed);
                let (things, line) = (Arc::clone(&things), line["begin ".len()..].to_owned());
                begun = Some(std::thread::spawn(move || obeyed(&things, &line)));
                "begun".to_owned()
            }
            "end" => begun.take().unwrap().join().unwrap(),
            "interrupt" => {
                INTERRUPTED.store(true, Ordering::Relaxed);
                "ok".to_owned()
            }
            "fork" => in_a_child(|| obeyed(&things, &line["fork ".len()..])),
            _ => obeyed(&things, &line),
        };
        say(&answer);
    }
}

fn heard() -> Option<String> {
    let mut line = String::new();
    (std::io::stdin().read_line(&mut line).unwrap() > 0).then_some(line)
}

fn say(answer: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "@@ {answer}").and_then(|()| out.flush()).unwrap();
}

fn obeyed(things: &Shared, line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    obey(things, &words).unwrap_or_else(|error| error.kind().code().to_owned())
}

fn ms(count: &str) -> Duration {
    Duration::from_millis(count.parse().unwrap())
}

fn ok() -> Result<String, Error> {
    Ok("ok".to_owned())
}

fn obey(things: &Shared, words: &[&str]) -> Result<String, Error> {
    let lock_of = |name: &str| things.lock().unwrap().locks[name].clone();
    let take = |name: &str| things.lock().unwrap().leases.remove(name);
    let keep = |name: &str, lease: Lease| {
        let fence = lease.fence();
        things.lock().unwrap().leases.insert(name.to_owned(), lease);
        Ok(format!("ok {fence}"))
    };
    let client = || things.lock().unwrap().client.clone().unwrap();
    match words {
        ["open", url] => {
            if let Some((name, _)) =
                url.strip_prefix("memory:").map(|it| it.split_once('?').unwrap_or((it, "")))
            {
                leasehold::testing::Memory::named(name);
            }
            let client = Client::open(url)?;
            client.reopen_after_fork();
            let mut things = things.lock().unwrap();
            (things.client, things.url) = (Some(client), (*url).to_owned());
            ok()
        }
        ["lock", key, name, options @ ..] => {
            let mut lock = client().lock(decoded(name));
            for option in options {
                lock = match option.split_once('=').unwrap() {
                    ("ttl", count) => lock.ttl(ms(count)),
                    ("wait", count) => lock.wait(ms(count)),
                    ("io_timeout", count) => lock.io_timeout(ms(count)),
                    ("wait_mode", how) => lock.wait_mode(how.parse()?),
                    ("renew", "no") => lock.renew(false),
                    other => panic!("no option: {other:?}"),
                };
            }
            things.lock().unwrap().locks.insert((*key).to_owned(), lock);
            ok()
        }
        ["try", lease, lock] => match lock_of(lock).try_acquire()? {
            Some(taken) => keep(lease, taken),
            None => Ok("busy".to_owned()),
        },
        ["acquire", lease, lock] => {
            keep(lease, lock_of(lock).acquire_unless(|| INTERRUPTED.load(Ordering::Relaxed))?)
        }
        ["acquire_within", lease, lock, wait] => {
            keep(lease, lock_of(lock).acquire_within(ms(wait))?)
        }
        ["attach", lease, lock, token, fence] => {
            keep(lease, lock_of(lock).attach(token.parse()?, fence.parse().unwrap())?)
        }
        ["extend", lease] => {
            things.lock().unwrap().leases[*lease].extend()?;
            ok()
        }
        ["extend", lease, ttl] => {
            things.lock().unwrap().leases[*lease].extend_for(ms(ttl))?;
            ok()
        }
        ["release", lease] => {
            take(lease).unwrap().release()?;
            ok()
        }
        ["let_expire", lease, after] => {
            take(lease).unwrap().let_expire_in(ms(after))?;
            ok()
        }
        ["detach", lease] => {
            let (token, fence) = take(lease).unwrap().detach().unwrap();
            Ok(format!("ok {token} {fence}"))
        }
        ["valid", lease] => {
            // One that was ended is gone.
            let valid = things.lock().unwrap().leases.get(*lease).is_some_and(Lease::is_valid);
            Ok(if valid { "yes" } else { "no" }.to_owned())
        }
        ["remaining", lease] => {
            Ok(format!("ok {}", things.lock().unwrap().leases[*lease].remaining().as_millis()))
        }
        ["events"] => {
            let events = client().events()?;
            things.lock().unwrap().events = Some(events);
            ok()
        }
        ["event"] => {
            let next = things.lock().unwrap().events.as_ref().unwrap().next_within(LIMIT)?;
            Ok(next.map_or("timeout".to_owned(), |event| told(&event)))
        }
        ["on_lost", lease] => {
            let mut things = things.lock().unwrap();
            let sender = things.calls.get_or_insert_with(channel).0.clone();
            things.leases[*lease].on_lost(move |event| sender.send(event).unwrap())?;
            ok()
        }
        ["called", wait @ ..] => {
            let limit = wait.first().map_or(LIMIT, |wait| ms(wait));
            let next = things.lock().unwrap().calls.as_ref().unwrap().1.recv_timeout(limit);
            Ok(next.map_or("timeout".to_owned(), |event| told(&event)))
        }
        ["inspect", lock] => Ok(match lock_of(lock).inspect()?.holder {
            None => "free".to_owned(),
            Some(holder) => format!("held {}", holder.fence.unwrap_or(0)),
        }),
        ["break", lock, fence @ ..] => {
            let fence = fence.first().map(|fence| fence.parse().unwrap());
            Ok(match lock_of(lock).break_held(fence, "rust")? {
                Break::Broken { fence } => format!("ok {fence}"),
                _ => "none".to_owned(),
            })
        }
        ["elect", lock, ttl] => {
            let candidate = client().election(lock_of(lock).name()).ttl(ms(ttl));
            things.lock().unwrap().candidate = Some(candidate.clone());
            candidate.run_as_leader(|term| {
                while !term.ended_within(LIMIT) {}
                Ok::<(), Error>(())
            })?;
            ok()
        }
        ["leads"] => {
            Ok(fence_of_leader(things).map_or("timeout".to_owned(), |it| format!("ok {it}")))
        }
        ["leader"] => {
            let leader = things.lock().unwrap().candidate.as_ref().unwrap().leader()?;
            Ok(leader.map_or("free".to_owned(), |it| format!("held {}", it.fence.unwrap_or(0))))
        }
        ["withdraw"] => {
            things.lock().unwrap().candidate.as_ref().unwrap().stop();
            ok()
        }
        ["metric", series] => {
            let text = client().metrics_text();
            let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
            Ok(line.map_or("none".to_owned(), |value| format!("ok {value}")))
        }
        ["take_empty_name"] => take_name(&client(), &[]),
        ["take_long_name", length] => take_name(&client(), &vec![b'n'; length.parse().unwrap()]),
        ["fresh", lock] => {
            let url = things.lock().unwrap().url.clone();
            let name = lock_of(lock).name().to_vec();
            let taken = Client::open(&url)?.lock(name).try_acquire()?;
            Ok(taken.map_or("busy".to_owned(), |lease| format!("ok {}", lease.fence())))
        }
        ["close"] => {
            client().close()?;
            ok()
        }
        ["contend", turns, names @ ..] => contend(&client(), turns.parse().unwrap(), names),
        _ => Ok("unsupported".to_owned()),
    }
}

/// Once the candidate leads.
fn fence_of_leader(things: &Shared) -> Option<u64> {
    let start = std::time::Instant::now();
    while start.elapsed() < LIMIT {
        let fence = things.lock().unwrap().candidate.as_ref().and_then(Election::fence);
        if fence.is_some() {
            return fence;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}

fn told(event: &Event) -> String {
    let fence = event.fence;
    match event.kind {
        EventKind::Lost(reason) => format!("lost {} {fence}", spelled(&format!("{reason:?}"))),
        kind => format!("{} - {fence}", spelled(&format!("{kind:?}"))),
    }
}

/// `NotHeld` as `not_held`.
fn spelled(name: &str) -> String {
    let mut spelled = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !spelled.is_empty() {
            spelled.push('_');
        }
        spelled.extend(letter.to_lowercase());
    }
    spelled
}

fn take_name(client: &Client, name: &[u8]) -> Result<String, Error> {
    match client.lock(name).try_acquire()? {
        Some(lease) => lease.release()?,
        None => return Ok("busy".to_owned()),
    }
    ok()
}

fn decoded(name: &str) -> Vec<u8> {
    percent_encoding::percent_decode_str(name).collect()
}

fn contend(client: &Client, turns: usize, names: &[&str]) -> Result<String, Error> {
    let start = std::process::id() as usize;
    for turn in 0..turns {
        let name = names[(start + turn) % names.len()];
        let lock = client.lock(name).ttl(Duration::from_secs(10)).wait(Duration::from_secs(60));
        let lease = lock.acquire()?;
        let fence = lease.fence();
        say(&format!("enter {name} {fence}"));
        let value: u64 = heard().unwrap().trim().parse().unwrap();
        say(&format!("leave {name} {fence} {}", value + 1));
        heard().unwrap();
        lease.release()?;
    }
    Ok("done".to_owned())
}

/// What a forked child answers.
fn in_a_child(body: impl FnOnce() -> String) -> String {
    let (reader, writer) = pipe().unwrap();
    // SAFETY: the driver has no other thread at this moment that could hold what the child needs
    // (the library's own it guards itself).
    #[allow(unsafe_code)]
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            let answer = body();
            let mut writer = std::fs::File::from(writer);
            writeln!(writer, "{answer}").unwrap();
            drop(writer);
            // SAFETY: ends this process without running the parent's exit handlers.
            #[allow(unsafe_code)]
            unsafe {
                libc::_exit(0)
            }
        }
        ForkResult::Parent { child } => {
            drop(writer);
            let mut answer = String::new();
            std::io::BufReader::new(std::fs::File::from(reader)).read_line(&mut answer).unwrap();
            waitpid(child, None).unwrap();
            answer.trim().to_owned()
        }
    }
}
