//! A PostgreSQL store measured against bare statements.
//!
//! The limit is two prepared statements over the same client library, each of which updates one row and
//! is waited for: nobody can take a lock there and give it back in less, with the same durability.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use kit::Postgres;
use leasehold::Client;
use postgres_protocol::IsNull;
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;

use crate::cores::Cores;
use crate::cycle::{NAMES, cycle};
use crate::limit::take;
use crate::measure::{Loop, Outcome, interleave, median_us, nanos, part, whole};
use crate::table::Table;

pub(crate) fn measure(time: Duration) -> Outcome<Table> {
    let cores = Cores::choose()?;
    cores.pin_self()?;
    // On the disk of the build: a temporary folder may be in memory.
    let server = Postgres::start_in(Path::new(env!("CARGO_TARGET_TMPDIR")), &[]);
    let mut columns = Vec::new();
    for commit in ["on", "off"] {
        let database = server.database();
        server.sql(
            "postgres",
            &format!("ALTER DATABASE {database} SET synchronous_commit = {commit}"),
        );
        let client = Client::open(&server.url(&database))?;
        client.initialize(false)?;
        let lock = client.lock(NAMES[0]);
        let mut limit = Limit::connect(&server, &database)?;
        let mut loops: Vec<Loop<'_>> =
            vec![whole(|| limit.cycle()), part(|| cycle(&lock).map(|(take, give)| take + give))];
        let mut medians = interleave(&mut loops, time / 3)?;
        drop(loops);
        medians.extend(hand_over(&server.url(&database), &mut limit, time / 6)?);
        columns.push(medians);
    }
    cores.let_self_go()?;
    let mut table = Table::new("postgres", ["synchronous_commit = on", "off"]);
    let column = |at: usize| columns.iter().map(move |medians| Some(medians[at]));
    table.row("the bare limit of a cycle, µs", column(0));
    table.row("our cycle, µs", column(1));
    table.row("  over the limit", columns.iter().map(|medians| Some(medians[1] / medians[0])));
    table.row("hand-over, p50, µs", column(2));
    table.row("a bare statement in the same rhythm, µs", column(3));
    let ratio = |medians: &Vec<f64>| Some(medians[2] / medians[3]);
    table.row("  hand-over over it", columns.iter().map(ratio));
    Ok(table)
}

/// From a release until the waiter, another client, has the lock, and what one bare statement takes
/// after such a pause: medians, in microseconds.
fn hand_over(url: &str, limit: &mut Limit, time: Duration) -> Outcome<[f64; 2]> {
    let (giver, taker) = (Client::open(url)?, Client::open(url)?);
    let (begun, mut samples, mut bare) = (Instant::now(), Vec::new(), Vec::new());
    while begun.elapsed() < time || samples.len() < 3 {
        let held = take(&giver.lock(NAMES[1]))?;
        samples.push(std::thread::scope(|scope| -> Outcome<u64> {
            let waiter = scope.spawn(|| {
                let lease = taker.lock(NAMES[1]).acquire();
                (Instant::now(), lease)
            });
            // It stands in line by then, and holders are not in a hurry.
            std::thread::sleep(PAUSE);
            let released = Instant::now();
            held.release()?;
            let (got, lease) = waiter.join().map_err(|_| "the waiter panicked")?;
            lease?.release()?;
            Ok(nanos(got - released))
        })?);
        std::thread::sleep(PAUSE);
        let asked = Instant::now();
        limit.statement("take")?;
        bare.push(nanos(asked.elapsed()));
        limit.statement("give")?;
    }
    Ok([median_us(&mut samples), median_us(&mut bare)])
}

const PAUSE: Duration = Duration::from_millis(10);

struct Limit {
    stream: TcpStream,
    inbox: BytesMut,
}

const TOKEN: &[u8] = b"00000000-0000-0000-0000-000000000000";
const TAKE: &str = "UPDATE bare SET token = $1, fence = fence + 1,
    expiry = clock_timestamp() + interval '30 s'
    WHERE name = 'bench' AND (token IS NULL OR expiry <= clock_timestamp()) RETURNING fence";
const GIVE: &str = "UPDATE bare SET token = NULL WHERE name = 'bench' AND token = $1";

impl Limit {
    fn connect(server: &Postgres, database: &str) -> Outcome<Limit> {
        server.sql(
            database,
            "CREATE TABLE bare (name bytea PRIMARY KEY, token uuid, fence bigint, expiry timestamptz)
             WITH (fillfactor = 50); INSERT INTO bare VALUES ('bench', NULL, 0, now())",
        );
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port()))?;
        stream.set_nodelay(true)?;
        let mut limit = Limit { stream, inbox: BytesMut::new() };
        let mut out = BytesMut::new();
        frontend::startup_message([("user", "postgres"), ("database", database)], &mut out)?;
        limit.say(&out)?;
        out.clear();
        frontend::query(
            "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off",
            &mut out,
        )?;
        limit.say(&out)?;
        out.clear();
        frontend::parse("take", TAKE, [], &mut out)?;
        frontend::parse("give", GIVE, [], &mut out)?;
        frontend::sync(&mut out);
        limit.say(&out)?;
        Ok(limit)
    }

    fn cycle(&mut self) -> Outcome<()> {
        self.statement("take")?;
        self.statement("give")
    }

    fn statement(&mut self, statement: &str) -> Outcome<()> {
        let mut out = BytesMut::new();
        let put = |value: &[u8], out: &mut BytesMut| {
            out.extend_from_slice(value);
            Ok(IsNull::No)
        };
        frontend::bind("", statement, [0], [TOKEN], put, [1], &mut out)
            .map_err(|_| "the statement is too long")?;
        frontend::execute("", 0, &mut out)?;
        frontend::sync(&mut out);
        self.say(&out)
    }

    /// Until the server is ready for more.
    fn say(&mut self, bytes: &[u8]) -> Outcome<()> {
        self.stream.write_all(bytes)?;
        let mut room = [0; 4096];
        loop {
            while let Some(message) = Message::parse(&mut self.inbox)? {
                match message {
                    Message::ReadyForQuery(_) => return Ok(()),
                    Message::ErrorResponse(_) => return Err("the server refused".into()),
                    _ => {}
                }
            }
            let count = self.stream.read(&mut room)?;
            if count == 0 {
                return Err("the server hung up".into());
            }
            self.inbox.extend_from_slice(&room[..count]);
        }
    }
}
