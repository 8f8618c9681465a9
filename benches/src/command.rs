//! The arguments of `cargo bench --`, and what they ask for.

use std::io::BufWriter;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::also::Also;
use crate::beside::Beside;
#[cfg(feature = "etcd")]
use crate::etcd;
use crate::groups::Group;
use crate::measure::Outcome;
#[cfg(feature = "mysql")]
use crate::mysql;
#[cfg(feature = "postgres")]
use crate::postgres;
use crate::stores::Store;
use crate::table::Table;
use crate::waiters::{self, Where};
#[cfg(feature = "zookeeper")]
use crate::zookeeper;
use crate::{ceiling, contended, cycle, groups, leases, pass, report, table};

const WAITERS: [u32; 3] = [2, 8, 32];
const HOLD: Duration = Duration::from_millis(1);

/// What a lock of Leasehold costs, beside what it has to cost
///
/// Servers are started for the purpose, on this machine. Figures are medians of loops that take
/// turns in short blocks. "One core": client and server share a core, so that the figure shows what
/// the client itself costs. "A core each": it shows round trips. Compare ratios, not times.
#[derive(Parser)]
#[command(name = "cargo bench --", disable_help_subcommand = true)]
pub(crate) struct Cli {
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
    #[arg(long, conflicts_with_all = ["json", "report"])]
    count: bool,
    #[command(flatten)]
    others: Others,
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
            value_parser = leasehold::command::parse_duration)]
        hold: Vec<Duration>,
        /// Where the lock is. Of any store but Redis: how long handing over takes, and how fair it is
        #[arg(long, value_enum, default_value_t = Store::Redis)]
        store: Store,
    },
    /// Handing a lock on Redis over to one other client that waits, beside other libraries as they are
    /// set by default
    Pass {
        #[command(flatten)]
        others: Others,
    },
    /// How many locks a second one server serves, beside those that people write by hand
    Ceiling {
        /// How many processes ask for them, each for a lock of its own
        #[arg(value_name = "N", default_value_t = 32,
            value_parser = clap::value_parser!(u32).range(1..=1000))]
        clients: u32,
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
    Zookeeper(Alone),
    /// The same on an etcd, beside the Mutex of its own client for Go, which go fetches
    #[cfg(feature = "etcd")]
    Etcd(Alone),
    /// Holding many leases: how many are lost, what memory one takes, what the keeper does
    Leases {
        #[arg(value_name = "N", default_value_t = 100_000)]
        count: u32,
        /// The ttl of each
        #[arg(long, value_name = "DURATION", default_value = "30s",
            value_parser = leasehold::command::parse_duration)]
        ttl: Duration,
    },
    /// What `contended` starts for each client
    #[command(hide = true)]
    Waiters(waiters::Args),
    /// What `ceiling` starts for each client
    #[command(hide = true)]
    Cycles { name: String },
}

#[derive(clap::Args)]
struct Alone {
    /// Leave out what is beside it, and fetch nothing
    #[arg(long)]
    alone: bool,
}

#[derive(clap::Args)]
struct Others {
    /// Time Leasehold from other languages, and other libraries, in turn with ours; several with
    /// commas between. What is asked for is built first
    #[arg(long, value_enum, value_name = "NAME", value_delimiter = ',')]
    beside: Vec<Beside>,
}

impl Others {
    fn programs(&self) -> Outcome<Vec<Also>> {
        self.beside.iter().map(|one| one.program()).collect()
    }
}

pub(crate) fn main() -> ExitCode {
    let cli = Cli::parse();
    if cli.count {
        return count();
    }
    match run(&cli) {
        Ok(tables) if cli.json => println!("{:#}", table::json(&tables)),
        Ok(tables) => tables.iter().for_each(|table| println!("{}", table.text())),
        Err(error) => {
            eprintln!("bench: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Measures what was asked for, and writes the page.
pub(crate) fn run(cli: &Cli) -> Outcome<Vec<Table>> {
    let tables = measure(cli)?;
    if let Some(path) = &cli.report {
        report::write(path, &tables)?;
    }
    Ok(tables)
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

/// `also` on both stores; `beside` on Redis.
pub(crate) fn cycles(also: &[Also], beside: &[Also], time: Duration) -> Outcome<Vec<Table>> {
    let redis = cycle::measure(&[also, beside].concat(), time)?;
    #[cfg(not(feature = "sqlite"))]
    return Ok(vec![redis]);
    #[cfg(feature = "sqlite")]
    Ok(vec![redis, crate::sqlite::measure(also, time)?])
}

fn measure(cli: &Cli) -> Outcome<Vec<Table>> {
    let time = Duration::from_secs(cli.seconds);
    match &cli.what {
        None => {
            let mut tables = cycles(&[], &cli.others.programs()?, time)?;
            if cli.report.is_some() {
                let (waiters, holds) = (&WAITERS, &[HOLD]);
                let (store, place) = (Store::Redis, Where::Process);
                let options = contended::Options { waiters, clients: None, holds, store, place };
                tables.extend(contended::measure(&options, time)?);
            }
            Ok(tables)
        }
        Some(_) if !cli.others.beside.is_empty() => {
            Err("--beside stands behind `cycle`, `groups` or `pass`, or alone".into())
        }
        Some(What::Cycle { also, others }) => cycles(also, &others.programs()?, time),
        Some(What::Groups { groups, others }) => groups::measure(groups, &others.beside, time),
        Some(What::Contended { waiters, clients, hold: holds, store }) => {
            let (clients, store, place) = (*clients, *store, Where::Process);
            let options = contended::Options { waiters, clients, holds, store, place };
            contended::measure(&options, time)
        }
        Some(What::Waiters(args)) => {
            waiters::serve(args, std::io::stdin().lock(), std::io::stdout().lock())?;
            Ok(Vec::new())
        }
        Some(What::Cycles { name }) => {
            let url = std::env::var(leasehold::URL_VARIABLE)?;
            ceiling::serve(&url, name, std::io::stdin().lock(), BufWriter::new(std::io::stdout()))?;
            Ok(Vec::new())
        }
        Some(What::Pass { others }) => {
            if let Some(one) = others.beside.iter().find(|one| !one.hands_over()) {
                return Err(
                    format!("{one:?} hands nothing over; that is for other libraries").into()
                );
            }
            Ok(vec![pass::measure(&others.programs()?, time)?])
        }
        Some(What::Ceiling { clients }) => {
            Ok(vec![ceiling::measure(ceiling::ours()?, *clients, time)?])
        }
        #[cfg(feature = "postgres")]
        Some(What::Postgres) => Ok(vec![postgres::measure(time)?]),
        #[cfg(feature = "mysql")]
        Some(What::Mysql) => Ok(vec![mysql::measure(time)?]),
        #[cfg(feature = "zookeeper")]
        Some(What::Zookeeper(Alone { alone })) => Ok(vec![zookeeper::measure(*alone, time)?]),
        #[cfg(feature = "etcd")]
        Some(What::Etcd(Alone { alone })) => Ok(vec![etcd::measure(*alone, time)?]),
        Some(What::Leases { count, ttl }) => Ok(vec![leases::measure(*count, *ttl, time)?]),
    }
}
