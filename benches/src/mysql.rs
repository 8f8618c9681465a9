//! A MySQL store (of a MariaDB) measured against bare statements, and beside what people lock with
//! there: all of it as text over the same connection.
//!
//! The limit is two statements, each of which updates one row and is waited for: nobody can take a lock
//! there and give it back in less, with the same durability.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use kit::Mysql;

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
    let server = Mysql::start_in(Path::new(env!("CARGO_TARGET_TMPDIR")), &[]);
    let database = server.database();
    server.sql(&database, TABLE);
    let url = server.url(&database);
    let client = open(&url)?;
    client.initialize(false)?;
    let lock = client.lock(NAMES[0]);
    let connect = || Session::connect(&server, &database);
    let mut columns = Vec::new();
    for commit in [1, 2] {
        server.sql("", &format!("SET GLOBAL innodb_flush_log_at_trx_commit = {commit}"));
        let mut sessions = [connect()?, connect()?, connect()?];
        let mut loops: Vec<Loop<'_>> = vec![part(|| cycle(&lock).map(|(take, give)| take + give))];
        for (session, way) in sessions.iter_mut().zip(WAYS) {
            loops.push(whole(|| {
                session.say(way.take)?;
                session.say(way.give)
            }));
        }
        let mut medians = interleave(&mut loops, time / 3)?;
        drop(loops);
        medians.extend(hand_over(&url, &connect, time / 6)?);
        columns.push(medians);
    }
    cores.let_self_go()?;
    let mut table = Table::new("mysql", ["innodb_flush_log_at_trx_commit = 1", "2"]);
    let mut row = |name: &str, figure: &dyn Fn(&[f64]) -> f64| {
        table.row(name, columns.iter().map(|medians| Some(figure(medians))));
    };
    row("the bare limit of a cycle, µs", &|of| of[1]);
    row("our cycle, µs", &|of| of[0]);
    row("  over the limit", &|of| of[0] / of[1]);
    row("GET_LOCK, RELEASE_LOCK, over the limit", &|of| of[2] / of[1]);
    row("SELECT FOR UPDATE, COMMIT, over the limit", &|of| of[3] / of[1]);
    row("a bare statement after a pause, µs", &|of| of[4]);
    row("hand-over, p50, µs", &|of| of[5]);
    row("  hand-over over it", &|of| of[5] / of[4]);
    row("  of GET_LOCK, over it", &|of| of[6] / of[4]);
    row("  of SELECT FOR UPDATE, over it", &|of| of[7] / of[4]);
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
    // A server's thread that has just done something else is faster.
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

/// A way to take and to give with bare statements.
struct Way {
    take: &'static str,
    give: &'static str,
}

const TABLE: &str = "CREATE TABLE bare
    (name VARBINARY(512) PRIMARY KEY, token BINARY(16), fence BIGINT, expiry BIGINT) ENGINE = InnoDB;
    INSERT INTO bare VALUES ('bench', NULL, 0, 0), ('row', NULL, 0, 0)";

/// The first of them is the limit.
const WAYS: [Way; 3] = [
    Way {
        take: "UPDATE bare SET token = x'00112233445566778899aabbccddeeff', \
               fence = LAST_INSERT_ID(fence + 1), expiry = \
               TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6)) + 30000000 \
               WHERE name = x'62656e6368' AND (token IS NULL \
               OR expiry <= TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6)))",
        give: "UPDATE bare SET token = NULL WHERE name = x'62656e6368' \
               AND token = x'00112233445566778899aabbccddeeff'",
    },
    Way { take: "SELECT GET_LOCK('bench', 60)", give: "SELECT RELEASE_LOCK('bench')" },
    Way { take: "BEGIN; SELECT fence FROM bare WHERE name = 'row' FOR UPDATE", give: "COMMIT" },
];

struct Session {
    stream: TcpStream,
    inbox: Vec<u8>,
}

impl Session {
    fn connect(server: &Mysql, database: &str) -> Outcome<Session> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port()))?;
        stream.set_nodelay(true)?;
        let mut session = Session { stream, inbox: Vec::new() };
        session.packet()?;
        // CONNECT_WITH_DB, PROTOCOL_41, TRANSACTIONS, SECURE_CONNECTION, MULTI_STATEMENTS and -RESULTS.
        let flags: u32 = 0x8 | 0x200 | 0x2000 | 0x8000 | 0x1_0000 | 0x2_0000;
        let mut hello = [flags.to_le_bytes(), 0x100_0000_u32.to_le_bytes()].concat();
        hello.push(45);
        hello.extend_from_slice(&[0; 23]);
        hello.extend_from_slice(&[b"root\0\0", database.as_bytes(), b"\0"].concat());
        session.send(1, &hello)?;
        session.answer()?;
        Ok(session)
    }

    fn send(&mut self, sequence: u8, payload: &[u8]) -> Outcome<()> {
        let length = u32::try_from(payload.len())?.to_le_bytes();
        let head = [length[0], length[1], length[2], sequence];
        Ok(self.stream.write_all(&[&head, payload].concat())?)
    }

    fn packet(&mut self) -> Outcome<Vec<u8>> {
        loop {
            if let [low, middle, high, _, rest @ ..] = &*self.inbox {
                let length = u32::from_le_bytes([*low, *middle, *high, 0]) as usize;
                if let Some(payload) = rest.get(..length) {
                    let payload = payload.to_vec();
                    self.inbox.drain(..4 + length);
                    return Ok(payload);
                }
            }
            let mut room = [0; 4096];
            let count = self.stream.read(&mut room)?;
            if count == 0 {
                return Err("the server hung up".into());
            }
            self.inbox.extend_from_slice(&room[..count]);
        }
    }

    /// Until nothing more follows. Rows here have one column.
    fn answer(&mut self) -> Outcome<()> {
        loop {
            let first = self.packet()?;
            let status = match first.first() {
                // How many rows were changed, and the number that was made.
                Some(0) => past_number(past_number(&first[1..])).first().copied(),
                Some(0xff) => return Err(String::from_utf8_lossy(&first).into()),
                _ => {
                    // The column, the end of the columns, the row.
                    (0..3).try_for_each(|_| self.packet().map(drop))?;
                    self.packet()?.get(3).copied()
                }
            };
            const MORE: u8 = 8;
            if status.is_none_or(|status| status & MORE == 0) {
                return Ok(());
            }
        }
    }

    fn say(&mut self, statements: &str) -> Outcome<()> {
        self.send(0, &[b"\x03", statements.as_bytes()].concat())?;
        self.answer()
    }
}

/// What is behind a number that says itself how long it is.
fn past_number(bytes: &[u8]) -> &[u8] {
    let length = match bytes.first() {
        Some(0xfc) => 3,
        Some(0xfd) => 4,
        Some(0xfe) => 9,
        _ => 1,
    };
    bytes.get(length..).unwrap_or_default()
}
