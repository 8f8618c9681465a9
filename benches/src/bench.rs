//! What a lock costs, and how near that is to what it has to cost. `cargo bench -- --help`

// Cargo sets `test` here too, and without its harness nothing uses the tests.
#![allow(unused_imports, dead_code)]

mod also;
mod bare;
mod beside;
mod byhand;
mod contended;
mod cores;
mod cycle;
#[cfg(feature = "etcd")]
mod etcd;
mod groups;
mod leases;
mod limit;
mod measure;
#[cfg(feature = "mysql")]
mod mysql;
mod passing;
#[cfg(feature = "postgres")]
mod postgres;
mod report;
#[cfg(feature = "sqlite")]
mod sqlite;
mod table;
#[cfg(any(feature = "etcd", feature = "zookeeper"))]
mod theirs;
mod turns;
mod waiters;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::{Parser, Subcommand};

use also::Also;
use beside::Beside;
use groups::Group;
use measure::Outcome;
use table::Table;
use waiters::Where;

const WAITERS: [u32; 3] = [2, 8, 32];
const HOLD: Duration = Duration::from_millis(1);

/// What a lock of Leasehold costs, beside what it has to cost
///
/// Servers are started for the purpose, on this machine. Figures are medians of loops that take
/// turns in short blocks. "One core": client and server share a core, so that the figure shows what
/// the client itself costs. "A core each": it shows round trips. Compare ratios, not times.
#[derive(Parser)]
#[command(name = "cargo bench --", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    what: Option<What>,
    /// How long each part is measured
    #[arg(long, global = true, value_name = "N", default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    /// Also write a page with plots of it; without a subcommand, of a cycle and of handing over
    #[arg(long, global = true, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Count instead: instructions, allocations and commands of a cycle, by tests/steps, with valgrind
    #[arg(long)]
    count: bool,
    /// What cargo adds.
    #[arg(long, global = true, hide = true)]
    bench: bool,
}

#[derive(Subcommand)]
enum What {
    /// A cycle of taking and giving back, beside what people write by hand in C and beside the bytes of
    /// our own cycle, both on a bare socket; and on an SQLite file, beside two bare durable
    /// transactions. The default
    ///
    /// raw2 is SET NX PX and a script that deletes the key if the token is still there; raw2f takes
    /// the lock in a script that counts a fence with INCR. They are there where a C compiler is.
    Cycle {
        /// Time a program's cycles in turn with ours: a name, and a shell command
        ///
        /// It gets the name of the lock as its last argument and the store in LEASEHOLD_URL. For
        /// each line of input, a number, it takes the lock and gives it back that often, and answers
        /// with one line: the nanoseconds of each cycle.
        #[arg(long, value_name = "NAME=PROGRAM")]
        also: Vec<Also>,
        #[command(flatten)]
        others: Others,
    },
    /// The same with Sentinels, on a Cluster of three masters, and on quorums, also with a node
    /// stopped; and with Sentinels, how soon after an election a waiter has the lock
    Groups {
        /// Some of them only
        #[arg(value_enum)]
        groups: Vec<Group>,
        #[command(flatten)]
        others: Others,
    },
    /// Handing one lock over among clients that wait for it, each a process, beside PINGs in the same
    /// rhythm; and among the threads of one client
    Contended {
        /// How many wait
        #[arg(value_name = "N", default_values_t = WAITERS,
            value_parser = clap::value_parser!(u32).range(2..=10_000))]
        waiters: Vec<u32>,
        /// How many clients they share; each has one of its own otherwise
        #[arg(long, value_name = "N")]
        clients: Option<u32>,
        /// For how long each holds the lock; several with commas between
        #[arg(long, value_name = "DURATION", value_delimiter = ',', default_value = "1ms",
            value_parser = leasehold::parse_duration)]
        hold: Vec<Duration>,
    },
    /// A cycle on a PostgreSQL, beside two bare statements of the same durability, and handing a lock
    /// over
    #[cfg(feature = "postgres")]
    Postgres,
    /// The same on a MySQL, of a MariaDB server
    #[cfg(feature = "mysql")]
    Mysql,
    /// A cycle on a ZooKeeper, beside two bare changes, and handing a lock over; beside Curator, which
    /// Maven fetches
    #[cfg(feature = "zookeeper")]
    Zookeeper,
    /// The same on an etcd, beside the Mutex of its own client for Go, which go fetches
    #[cfg(feature = "etcd")]
    Etcd,
    /// Holding many leases: how many are lost, what memory one takes, what the keeper does
    Leases {
        #[arg(value_name = "N", default_value_t = 100_000)]
        count: u32,
        /// The ttl of each
        #[arg(long, value_name = "DURATION", default_value = "30s",
            value_parser = leasehold::parse_duration)]
        ttl: Duration,
    },
    /// What `contended` starts for each client
    #[command(hide = true)]
    Waiters(waiters::Args),
}

#[derive(clap::Args)]
struct Others {
    /// Time Leasehold from other languages, and other libraries, in turn with ours; several with
    /// commas between. What is asked for is built first
    #[arg(long, value_enum, value_name = "NAME", value_delimiter = ',')]
    beside: Vec<Beside>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if cli.count {
        return count();
    }
    let measured = measure(&cli).and_then(|tables| {
        if let Some(path) = &cli.report {
            report::write(path, &tables)?;
        }
        Ok(tables)
    });
    match measured {
        Ok(tables) if cli.json => println!("{:#}", table::json(&tables)),
        Ok(tables) => tables.iter().for_each(|table| println!("{}", table.text())),
        Err(error) => {
            eprintln!("bench: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn count() -> ExitCode {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/steps");
    match Command::new(program).status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {program}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(cli: &Cli) -> Outcome<Vec<Table>> {
    let time = Duration::from_secs(cli.seconds);
    match &cli.what {
        None => {
            let mut tables = cycle::measure(&[], &[], time)?;
            if cli.report.is_some() {
                let (waiters, holds) = (&WAITERS, &[HOLD]);
                let options =
                    contended::Options { waiters, clients: None, holds, place: Where::Process };
                tables.extend(contended::measure(&options, time)?);
            }
            Ok(tables)
        }
        Some(What::Cycle { also, others }) => {
            let built: Outcome<Vec<_>> = others.beside.iter().map(|one| one.program()).collect();
            cycle::measure(also, &built?, time)
        }
        Some(What::Groups { groups, others }) => groups::measure(groups, &others.beside, time),
        Some(What::Contended { waiters, clients, hold }) => {
            let (clients, place) = (*clients, Where::Process);
            contended::measure(&contended::Options { waiters, clients, holds: hold, place }, time)
        }
        Some(What::Waiters(args)) => {
            waiters::serve(args, std::io::stdin().lock(), std::io::stdout().lock())?;
            Ok(Vec::new())
        }
        #[cfg(feature = "postgres")]
        Some(What::Postgres) => Ok(vec![postgres::measure(time)?]),
        #[cfg(feature = "mysql")]
        Some(What::Mysql) => Ok(vec![mysql::measure(time)?]),
        #[cfg(feature = "zookeeper")]
        Some(What::Zookeeper) => Ok(vec![zookeeper::measure(time)?]),
        #[cfg(feature = "etcd")]
        Some(What::Etcd) => Ok(vec![etcd::measure(time)?]),
        Some(What::Leases { count, ttl }) => Ok(vec![leases::measure(*count, *ttl, time)?]),
    }
}
