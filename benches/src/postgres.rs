//! A PostgreSQL store measured against bare statements, and beside what people lock with there: all of
//! it prepared, over the same client library.
//!
//! The limit is two statements, each of which updates one row and is waited for: nobody can take a lock
//! there and give it back in less, with the same durability.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use kit::Postgres;
use postgres_protocol::IsNull;
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;

use crate::cores::Cores;
use crate::cycle::{NAMES, cycle};
use crate::limit::take;
use crate::measure::{Loop, Outcome, interleave, median_us, nanos, part, whole};
use crate::passing::{PAUSE, passed};
use crate::stores::open;
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
        server.sql(&database, TABLE);
        let connect = || Session::connect(&server, &database);
        let client = open(&server.url(&database))?;
        client.initialize(false)?;
        let lock = client.lock(NAMES[0]);
        let mut sessions = [connect()?, connect()?, connect()?];
        let mut loops: Vec<Loop<'_>> = vec![
            part(|| cycle(&lock).map(|(take, give)| take + give)),
            whole(|| {
                drop(take(&lock)?);
                Ok(())
            }),
        ];
        for (session, way) in sessions.iter_mut().zip(WAYS) {
            loops.push(whole(|| {
                session.say(way.take)?;
                session.say(way.give)
            }));
        }
        let mut medians = interleave(&mut loops, time / 3)?;
        drop(loops);
        medians.extend(hand_over(&server.url(&database), &connect, time / 6)?);
        columns.push(medians);
    }
    cores.let_self_go()?;
    let mut table = Table::new("postgres", ["synchronous_commit = on", "off"]);
    let mut row = |name: &str, figure: &dyn Fn(&[f64]) -> f64| {
        table.row(name, columns.iter().map(|medians| Some(figure(medians))));
    };
    row("the bare limit of a cycle, µs", &|of| of[2]);
    row("our cycle, µs", &|of| of[0]);
    row("  over the limit", &|of| of[0] / of[2]);
    row("  the lease dropped, over the limit", &|of| of[1] / of[2]);
    row("pg_advisory_lock, unlock, over the limit", &|of| of[3] / of[2]);
    row("SELECT FOR UPDATE, COMMIT, over the limit", &|of| of[4] / of[2]);
    row("a bare statement after a pause, µs", &|of| of[5]);
    row("hand-over, p50, µs", &|of| of[6]);
    row("  hand-over over it", &|of| of[6] / of[5]);
    row("  of pg_advisory_lock, over it", &|of| of[7] / of[5]);
    row("  of SELECT FOR UPDATE, over it", &|of| of[8] / of[5]);
    Ok(table)
}

/// What one bare statement takes after a pause; and in the same rhythm, from a release until another
/// client, which waits, has the lock: of ours, and of each other way. Medians, in microseconds.
fn hand_over(
    url: &str,
    connect: &dyn Fn() -> Outcome<Session>,
    time: Duration,
) -> Outcome<[f64; 4]> {
    let (giver, taker) = (open(url)?, open(url)?);
    // A server's process that has just done something else is faster.
    let mut bare = connect()?;
    let mut sessions = [[connect()?, connect()?], [connect()?, connect()?]];
    let (begun, mut samples) = (Instant::now(), [(); 4].map(|()| Vec::new()));
    while begun.elapsed() < time || samples[0].len() < 3 {
        std::thread::sleep(PAUSE);
        let asked = Instant::now();
        bare.say(WAYS[0].take)?;
        samples[0].push(nanos(asked.elapsed()));
        bare.say(WAYS[0].give)?;
        let held = take(&giver.lock(NAMES[1]))?;
        samples[1].push(passed(
            PAUSE,
            || Ok(held.release()?),
            || Ok(taker.lock(NAMES[1]).acquire()?),
            |lease| Ok(lease.release()?),
        )?);
        for (at, [one, other]) in sessions.iter_mut().enumerate() {
            let (way, samples) = (&WAYS[at + 1], &mut samples[at + 2]);
            one.say(way.take)?;
            let wait = || other.say(way.take).map(|()| other);
            samples.push(passed(PAUSE, || one.say(way.give), wait, |other| other.say(way.give))?);
        }
    }
    Ok(samples.map(|mut samples| median_us(&mut samples)))
}

/// A way to take and to give with bare statements, each of some that are sent together.
struct Way {
    take: &'static [Statement],
    give: &'static [Statement],
}

/// Its name, its text and its values.
type Statement = (&'static str, &'static str, &'static [&'static [u8]]);

const TABLE: &str = "CREATE TABLE bare
    (name bytea PRIMARY KEY, token uuid, fence bigint, expiry timestamptz) WITH (fillfactor = 50);
    INSERT INTO bare VALUES ('bench', NULL, 0, now()), ('row', NULL, 0, now())";
const TOKEN: &[u8] = b"00000000-0000-0000-0000-000000000000";
const TAKE: &str = "UPDATE bare SET token = $1, fence = fence + 1,
    expiry = clock_timestamp() + interval '30 s'
    WHERE name = 'bench' AND (token IS NULL OR expiry <= clock_timestamp()) RETURNING fence";
const GIVE: &str = "UPDATE bare SET token = NULL WHERE name = 'bench' AND token = $1";

/// The first of them is the limit.
const WAYS: [Way; 3] = [
    Way { take: &[("take", TAKE, &[TOKEN])], give: &[("give", GIVE, &[TOKEN])] },
    Way {
        take: &[("lock", "SELECT pg_advisory_lock(7)", &[])],
        give: &[("unlock", "SELECT pg_advisory_unlock(7)", &[])],
    },
    Way {
        take: &[
            ("begin", "BEGIN", &[]),
            ("keep", "SELECT fence FROM bare WHERE name = 'row' FOR UPDATE", &[]),
        ],
        give: &[("commit", "COMMIT", &[])],
    },
];

struct Session {
    stream: TcpStream,
    inbox: BytesMut,
}

impl Session {
    fn connect(server: &Postgres, database: &str) -> Outcome<Session> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port()))?;
        stream.set_nodelay(true)?;
        let mut session = Session { stream, inbox: BytesMut::new() };
        let mut out = BytesMut::new();
        frontend::startup_message([("user", "postgres"), ("database", database)], &mut out)?;
        session.ask(&out)?;
        out.clear();
        frontend::query(
            "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off",
            &mut out,
        )?;
        session.ask(&out)?;
        out.clear();
        for (name, sql, _) in WAYS.iter().flat_map(|way| way.take.iter().chain(way.give)) {
            frontend::parse(name, sql, [], &mut out)?;
        }
        frontend::sync(&mut out);
        session.ask(&out)?;
        Ok(session)
    }

    fn say(&mut self, statements: &[Statement]) -> Outcome<()> {
        let mut out = BytesMut::new();
        for (name, _, values) in statements {
            let put = |value: &&[u8], out: &mut BytesMut| {
                out.extend_from_slice(value);
                Ok(IsNull::No)
            };
            frontend::bind("", name, [0], *values, put, [1], &mut out)
                .map_err(|_| "the statement is too long")?;
            frontend::execute("", 0, &mut out)?;
        }
        frontend::sync(&mut out);
        self.ask(&out)
    }

    /// Until the server is ready for more.
    fn ask(&mut self, bytes: &[u8]) -> Outcome<()> {
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
