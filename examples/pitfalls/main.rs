//! Four locks on Redis that people write by hand, each shown going wrong against a real server,
//! and the same scenario with Leasehold.
//!
//! Nothing is left to chance: each program acts step by step in a fixed order, so each of the four
//! locks goes wrong every time.
//!
//! `LEASEHOLD_URL=redis://127.0.0.1 cargo run --example pitfalls`. It uses a few names of its own
//! there and removes them.

mod clock_values;
mod crash_between;
mod late_delete;
mod losers_touch;

use std::error::Error;
use std::hash::{BuildHasher, RandomState};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};

use leasehold::{Client, URL_VARIABLE};
use redis::Connection;

type Outcome = Result<(), Box<dyn Error>>;

/// A Redis, as both ways of locking see it.
struct Redis {
    url: String,
    by_hand: Connection,
}

impl Redis {
    fn open(url: &str) -> Result<Redis, Box<dyn Error>> {
        Client::open(url)?.ping()?;
        Ok(Redis { url: url.to_owned(), by_hand: redis::Client::open(url)?.get_connection()? })
    }

    /// Another client of Leasehold each time, as another process would be.
    fn leasehold(&self) -> Result<Client, leasehold::Error> {
        Client::open(&self.url)
    }

    /// `SETNX key value`: whether it was set.
    fn set_nx(&mut self, key: &str, value: &str) -> redis::RedisResult<bool> {
        redis::cmd("SETNX").arg(key).arg(value).query(&mut self.by_hand)
    }

    /// `SET key value NX PX ms`: whether it was set.
    fn set_nx_px(&mut self, key: &str, value: &str, ms: u64) -> redis::RedisResult<bool> {
        let mut set = redis::cmd("SET");
        let set: Option<String> =
            set.arg(key).arg(value).arg("NX").arg("PX").arg(ms).query(&mut self.by_hand)?;
        Ok(set.is_some())
    }

    fn get(&mut self, key: &str) -> redis::RedisResult<Option<String>> {
        redis::cmd("GET").arg(key).query(&mut self.by_hand)
    }

    /// Milliseconds; -1 without a ttl, -2 without a key.
    fn ttl_ms(&mut self, key: &str) -> redis::RedisResult<i64> {
        redis::cmd("PTTL").arg(key).query(&mut self.by_hand)
    }

    fn delete(&mut self, key: &str) -> redis::RedisResult<bool> {
        redis::cmd("DEL").arg(key).query(&mut self.by_hand)
    }
}

/// This program again, as a holder that acquires a lock and then dies of a `SIGKILL`.
fn run_until_it_holds(scheme: &str, name: &str) -> Result<Child, Box<dyn Error>> {
    let mut child = Command::new(std::env::current_exe()?)
        .args([scheme, name])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut said = String::new();
    let output = child.stdout.take().ok_or("no standard output")?;
    BufReader::new(output).read_line(&mut said)?;
    if said.trim_end() != "holds" {
        child.wait()?;
        return Err(format!("the holder said {said:?}").into());
    }
    Ok(child)
}

fn run(url: &str) -> Outcome {
    let mut redis = Redis::open(url)?;
    let mut arguments = std::env::args().skip(1);
    if let (Some(scheme), Some(name)) = (arguments.next(), arguments.next()) {
        return crash_between::hold(&mut redis, &scheme, &name);
    }
    let name = |what: &str| format!("pitfall:{what}:{:x}", RandomState::new().hash_one(0));
    crash_between::show(&mut redis, &name("crash"))?;
    clock_values::show(&mut redis, &name("clock"))?;
    late_delete::show(&mut redis, &name("delete"))?;
    losers_touch::show(&mut redis, &name("ttl"))
}

fn main() -> ExitCode {
    let url = std::env::var(URL_VARIABLE).unwrap_or_default();
    if !url.starts_with("redis:") && !url.starts_with("unix:") {
        eprintln!(
            "These mistakes are made with Redis: start redis-server, and give its URL as in \
             {URL_VARIABLE}=redis://127.0.0.1 cargo run --example pitfalls"
        );
        return ExitCode::from(2);
    }
    match run(&url) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
