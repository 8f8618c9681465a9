//! `leasehold bench`: what a lock costs on your own server, and how near that is to what it has
//! to cost.

mod also;
mod bare;
mod contended;
mod count;
mod groups;
mod leases;
mod limit;
mod measure;
mod ours;
mod pin;
mod record;
mod redis;
mod report;
mod server;
#[cfg(feature = "sqlite")]
mod sqlite;
mod watch;

use std::cell::RefCell;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::Duration;

use leasehold::{Client, URL_VARIABLE};
use serde_json::Value;

use self::also::{Also, Program};
use self::leases::Plan;
use self::pin::Cores;
use self::server::{Socket, Spawned};
use self::watch::Watch;
use crate::exit::Failure;

/// Measures a cycle of taking a lock and giving it back against the bare limit: a socket,
/// prepared bytes and the same scripts.
///
/// Without --store and --spawn-redis it measures the store that LEASEHOLD_URL names, else a
/// redis-server or valkey-server that it starts for the purpose, else, where neither is
/// installed, an SQLite file in a temporary folder.
///
/// Figures are medians in microseconds, with client and server on one core (same) and with a core
/// each (cross). A server on this machine is kept on a core meanwhile, if that is allowed, and let
/// go afterwards. What it counts, it counts by INFO; what the library sends, it reads from one
/// cycle with MONITOR. An SQLite store is compared with two bare durable transactions on a file
/// beside it.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The store to measure.
    #[arg(long, value_name = "URL", conflicts_with = "spawn_redis")]
    store: Option<String>,
    /// Start a server for the measurement: on a free port, or on a unix socket.
    #[arg(long, value_enum, value_name = "SOCKET", num_args = 0..=1, require_equals = true,
        default_missing_value = "tcp")]
    spawn_redis: Option<Socket>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// How long to measure.
    #[arg(long, value_name = "N", default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Time a program's cycles in turn with ours: a name for the report, and a shell command.
    ///
    /// It gets the name of the lock as its last argument and the store in LEASEHOLD_URL. For each
    /// line of input, a number, it takes the lock and gives it back so often, and answers with one
    /// line: the nanoseconds of each cycle. Can be given several times.
    #[arg(long, value_name = "NAME=PROGRAM")]
    also: Vec<Also>,
    /// Instead of cycles, hold this many leases and see what becomes of them.
    ///
    /// Tells how many were lost, the memory that each takes beyond its name (by the growth of the
    /// process, so it is worth something from ten thousand on), and the keeper's share of a core.
    #[arg(long, value_name = "N", conflicts_with_all = ["seconds", "also"],
        value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    leases: Option<u64>,
    /// How long to hold the leases.
    #[arg(long, value_name = "N", default_value_t = 120, requires = "leases",
        value_parser = clap::value_parser!(u64).range(1..=86_400))]
    hold_seconds: u64,
    /// The ttl of the leases held.
    #[arg(long, value_name = "DURATION", default_value = "30s", requires = "leases",
        value_parser = leasehold::parse_duration)]
    ttl: Duration,
    #[command(flatten)]
    contended: contended::Options,
    #[command(flatten)]
    groups: groups::Wanted,
}

pub(crate) fn main(args: &Args) -> Result<u8, Failure> {
    if args.contended.is_worker() {
        return contended::worker();
    }
    let (json, text) = bench(args)?;
    if args.json {
        println!("{json:#}");
    } else {
        print!("{text}");
    }
    Ok(0)
}

/// The result, for programs and for people.
fn bench(args: &Args) -> Result<(Value, String), Failure> {
    let time = Duration::from_secs(args.seconds);
    if args.groups.are_wanted() {
        let report = groups::measure(&args.groups, time)?;
        return Ok((report.json(), report.text()));
    }
    let target = Target::choose(args)?;
    let expected = match args.leases {
        Some(_) => Duration::from_secs(args.hold_seconds),
        None if args.contended.is_wanted() => args.contended.expected(time),
        None => time,
    };
    let watch = Watch::start(expected)?;
    let url = target.url();
    let name = format!("leasehold-bench:{:016x}", measure::random_bits()?);
    if let Some(count) = args.leases {
        let client = Client::open(&url)?;
        let plan = Plan {
            count: usize::try_from(count).unwrap_or(usize::MAX),
            hold: Duration::from_secs(args.hold_seconds),
            ttl: args.ttl,
        };
        let held = leases::hold(&url, &client, &name, &plan, &watch)?;
        return Ok((held.json(), held.text()));
    }
    if args.contended.is_wanted() {
        let report = contended::measure(&args.contended, &url, &name, time, &watch)?;
        return Ok((report.json(), report.text()));
    }
    // Before the client is opened, so that its threads stay on the same core.
    let cores = Cores::choose()?;
    cores.pin_self()?;
    let client = Client::open(&url)?;
    let programs = RefCell::new(Program::start_all(&args.also, &url, &name)?);
    #[cfg(feature = "sqlite")]
    if client.store().starts_with("sqlite:") {
        let report = sqlite::measure(&client, &name, &mut programs.borrow_mut(), time, &watch)?;
        return Ok((report.json(), report.text()));
    }
    client.ping()?;
    let bench = redis::Bench { client: &client, name: &name, programs, cores, time, watch: &watch };
    let report = bench.measure(&url)?;
    Ok((report.json(), report.text()))
}

/// The store that is measured; one that was made for the purpose ends with it.
enum Target {
    Given(String),
    Spawned(Spawned),
    Folder(Folder),
}

impl Target {
    fn choose(args: &Args) -> Result<Target, Failure> {
        if let Some(url) = &args.store {
            return Ok(Target::Given(url.clone()));
        }
        if let Some(socket) = args.spawn_redis {
            let none =
                || Failure::unavailable("neither redis-server nor valkey-server is installed");
            return Spawned::start(socket)?.map(Target::Spawned).ok_or_else(none);
        }
        match std::env::var(URL_VARIABLE) {
            Ok(url) if !url.is_empty() => Ok(Target::Given(url)),
            _ => match Spawned::start(Socket::Tcp)? {
                Some(spawned) => Ok(Target::Spawned(spawned)),
                None => Ok(Target::Folder(Folder::create()?)),
            },
        }
    }

    fn url(&self) -> String {
        match self {
            Target::Given(url) => url.clone(),
            Target::Spawned(spawned) => spawned.url(),
            Target::Folder(Folder(path)) => format!("sqlite:{}/locks.db", path.display()),
        }
    }
}

/// A folder that is there as long as this is.
struct Folder(PathBuf);

impl Folder {
    fn create() -> Result<Folder, Failure> {
        let name = format!("leasehold-bench-{:016x}", measure::random_bits()?);
        let path = std::env::temp_dir().join(name);
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
