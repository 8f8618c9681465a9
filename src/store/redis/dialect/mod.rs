//! How locks are written in a server: keys, scripts, and how their replies read. Knows no
//! topology.

pub(super) mod guard;
pub(super) mod keys;
mod look;
pub(super) mod native;
mod notice;
pub(in crate::store) mod quorum;

use std::borrow::Cow;
use std::time::Duration;

use once_cell::race::OnceBox;
use redis::{ServerError, Value};

use super::fault;
use super::wire::RunId;
use crate::error::{Error, ErrorKind};
use crate::store::millis;

/// A script of one file, or of several one after the other.
macro_rules! script {
    ($new:ident: $($file:literal),+ $(; $follower:ident)?) => {
        Script::$new(
            concat!($(include_str!($file)),+),
            || redis::Script::new(concat!($(include_str!($file)),+)).get_hash().to_owned(),
            $(&$follower)?
        )
    };
}
use script;

/// A script in a file of its own, and the digest that it is called by.
pub(super) struct Script {
    pub(super) source: &'static str,
    hash: fn() -> String,
    digest: OnceBox<String>,
    /// Loaded along with it: needed later, when it may be too late to hear that it is missing.
    pub(super) follower: Option<&'static Script>,
}

impl Script {
    const fn new(source: &'static str, hash: fn() -> String) -> Script {
        Script { source, hash, digest: OnceBox::new(), follower: None }
    }

    const fn leading(
        source: &'static str,
        hash: fn() -> String,
        follower: &'static Script,
    ) -> Script {
        Script { source, hash, digest: OnceBox::new(), follower: Some(follower) }
    }

    pub(super) fn digest(&self) -> &str {
        self.digest.get_or_init(|| Box::new((self.hash)()))
    }

    /// The command that an error of this script is about. Servers before 7.2 only tell the line
    /// (`@user_script:12`) of a command that they forbid.
    fn command_of(&self, error: &str) -> Option<&'static str> {
        let (_, place) = error.rsplit_once("user_script:")?;
        let digits = place.trim_start();
        let digits = &digits[..digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len())];
        let line = self.source.lines().nth(digits.parse::<usize>().ok()?.checked_sub(1)?)?;
        line.split_once("call('")?.1.split_once('\'').map(|(command, _)| command)
    }
}

/// A batch of calls, packed to be sent in one write.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) bytes: Vec<u8>,
    pub(super) calls: Vec<Call>,
    /// Where the run id of the server belongs that they are sent to.
    runs: Vec<usize>,
}

/// One call of a script within a batch's bytes.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) script: &'static Script,
    pub(super) start: usize,
    pub(super) end: usize,
    /// WAIT stands behind it, and its reply comes behind the script's.
    pub(super) is_awaited: bool,
}

impl Batch {
    /// Room for so many calls with everyday names, so that packing them copies nothing twice.
    fn with_room_for(calls: usize) -> Batch {
        Batch {
            bytes: Vec::with_capacity(calls * 320),
            calls: Vec::with_capacity(calls),
            runs: Vec::new(),
        }
    }

    /// Bytes that are no calls of scripts.
    pub(super) fn plain(bytes: Vec<u8>) -> Batch {
        Batch { bytes, ..Batch::default() }
    }

    /// Packs a call straight into the bytes: a command of the `redis` crate would be put together
    /// elsewhere and copied, for every lock that is taken.
    fn push(&mut self, script: &'static Script, keys: &[&[u8]], args: &[&[u8]]) {
        let start = self.bytes.len();
        self.begin(script, keys.len(), args.len());
        keys.iter().for_each(|key| bulk(&mut self.bytes, key));
        self.end(script, start, args);
    }

    /// The same for a script that stands behind guard.lua.
    fn push_guarded(
        &mut self,
        script: &'static Script,
        keys: &[&[u8]],
        guarding: Guarding<'_>,
        args: &[&[u8]],
    ) {
        let start = self.bytes.len();
        self.begin(script, 1 + keys.len(), 2 + args.len());
        keys.iter().for_each(|key| bulk(&mut self.bytes, key));
        bulk(&mut self.bytes, guarding.marker);
        bulk(&mut self.bytes, &[b'?'; RUN]);
        self.runs.push(self.bytes.len() - b"\r\n".len() - RUN);
        bulk(&mut self.bytes, guarding.longest);
        self.end(script, start, args);
    }

    fn begin(&mut self, script: &'static Script, keys: usize, args: usize) {
        head(&mut self.bytes, b'*', 3 + keys + args);
        bulk(&mut self.bytes, b"EVALSHA");
        bulk(&mut self.bytes, script.digest().as_bytes());
        bulk(&mut self.bytes, Decimal::of(keys as u64).digits());
    }

    fn end(&mut self, script: &'static Script, start: usize, args: &[&[u8]]) {
        args.iter().for_each(|text| bulk(&mut self.bytes, text));
        self.calls.push(Call { script, start, end: self.bytes.len(), is_awaited: false });
    }

    /// Has the server wait for its replicas after the last call, before it does anything else on
    /// that connection.
    fn wait(&mut self, copies: Copies) {
        let Some(call) = self.calls.last_mut() else { return };
        head(&mut self.bytes, b'*', 3);
        bulk(&mut self.bytes, b"WAIT");
        bulk(&mut self.bytes, Decimal::of(copies.count.into()).digits());
        // Nothing at all would be for ever.
        bulk(&mut self.bytes, Decimal::of(millis(copies.patience).max(1)).digits());
        (call.end, call.is_awaited) = (self.bytes.len(), true);
    }

    /// How many replies come to all of it.
    pub(super) fn replies(&self) -> usize {
        self.calls.len() + self.calls.iter().filter(|call| call.is_awaited).count()
    }

    /// What is sent to a server of this run.
    pub(super) fn for_run(&self, run: Option<&RunId>) -> Result<Cow<'_, [u8]>, Error> {
        if self.runs.is_empty() {
            return Ok(Cow::Borrowed(&self.bytes));
        }
        let unasked = || Error::new(ErrorKind::Protocol, "the server's run id was not asked for");
        let run = run.ok_or_else(unasked)?;
        let mut bytes = self.bytes.clone();
        for at in &self.runs {
            bytes[*at..*at + RUN].copy_from_slice(run);
        }
        Ok(Cow::Owned(bytes))
    }

    /// Some of the calls of this batch as a batch of their own.
    pub(super) fn only(&self, indices: &[usize]) -> Batch {
        let mut batch = Batch::default();
        for index in indices {
            let call = &self.calls[*index];
            batch.add(self, call);
        }
        batch
    }

    /// This one, and then another.
    pub(super) fn and(mut self, other: &Batch) -> Batch {
        other.calls.iter().for_each(|call| self.add(other, call));
        self
    }

    /// The first key of one of its calls; all others of that call lie in the same slot.
    pub(super) fn key(&self, index: usize) -> &[u8] {
        let Call { start, end, .. } = self.calls[index];
        let call = &self.bytes[start..end];
        let head = call.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        // Before it stand EVALSHA, the digest and how many keys there are.
        let rest = (0..3).try_fold(&call[head..], |rest, _| Some(split_bulk(rest)?.1));
        rest.and_then(split_bulk).map_or(&[], |(key, _)| key)
    }

    /// One of the calls for a server that has to be told before each call that it is asked for what
    /// is only about to come to it. Nothing may come between the two, so the script is loaded first.
    /// The answer to the call is the last one.
    pub(super) fn asking(&self, index: usize) -> Batch {
        let (mut batch, call) = (Batch::default(), &self.calls[index]);
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(call.script.source);
        for command in [load, redis::cmd("ASKING")] {
            let start = batch.bytes.len();
            command.write_packed_command(&mut batch.bytes);
            batch.calls.push(Call {
                script: call.script,
                start,
                end: batch.bytes.len(),
                is_awaited: false,
            });
        }
        batch.add(self, call);
        batch
    }

    fn add(&mut self, other: &Batch, call: &Call) {
        let start = self.bytes.len();
        self.bytes.extend(&other.bytes[call.start..call.end]);
        // They lie in order, and there can be as many as a Cluster has slots.
        let first = other.runs.partition_point(|at| *at < call.start);
        let runs = other.runs[first..].iter().take_while(|at| **at < call.end);
        self.runs.extend(runs.map(|at| at - call.start + start));
        self.calls.push(Call { start, end: self.bytes.len(), ..call.clone() });
    }
}

/// How many replicas must have a grant before it counts, and how long it may take them.
#[derive(Clone, Copy)]
pub(super) struct Copies {
    count: u32,
    patience: Duration,
}

impl Copies {
    /// Nothing where no replicas are waited for. What is asked may take so long altogether.
    pub(super) fn wanted(count: u32, timeout: Duration) -> Option<Copies> {
        // The rest of the time is for the way there and back, and for once more: WAIT also waits
        // where the call before it did nothing.
        let patience = timeout / 4;
        (count > 0).then_some(Copies { count, patience })
    }

    /// Whether there are enough, by what the server said to WAIT.
    pub(super) fn check(self, said: Option<&Value>) -> Result<(), Error> {
        let Copies { count, .. } = self;
        match said {
            Some(Value::Int(acknowledged)) if *acknowledged >= i64::from(count) => Ok(()),
            Some(Value::Int(acknowledged)) => {
                let what = format!("{acknowledged} of {count} replicas");
                Err(Error::new(ErrorKind::NotReplicated, what))
            }
            Some(Value::ServerError(error)) => {
                let error = fault::server(error);
                Err(Error::new(error.kind(), format!("WAIT: {}", error.detail())))
            }
            _ => Err(Error::new(ErrorKind::Protocol, "WAIT was answered by something else")),
        }
    }
}

/// What guard.lua is told besides the run id: its key, and the longest ttl.
#[derive(Clone, Copy)]
struct Guarding<'a> {
    marker: &'a [u8],
    longest: &'a [u8],
}

/// Digits of a run id.
const RUN: usize = size_of::<RunId>();

/// An error of a script; one about a right says which command lacks it.
fn explain(script: &Script, error: &ServerError) -> Error {
    let explained = fault::server(error);
    match script.command_of(explained.detail()) {
        Some(command) if explained.kind() == ErrorKind::Permission => {
            Error::new(ErrorKind::Permission, format!("{command}: {}", explained.detail()))
        }
        _ if explained.kind() == ErrorKind::WrongType => foreign("it is of another type"),
        _ => explained,
    }
}

/// A token's place in a queue: for how long it would be granted the lock, and where it is told, are
/// a part of it. Nothing where the client is told nowhere, and so can have none.
fn write_member(member: &mut Vec<u8>, token: &[u8], span: Duration, channel: &[u8]) {
    member.clear();
    if !channel.is_empty() {
        let span = Decimal::of(millis(span));
        [token, b" ", span.digits(), b" ", channel]
            .iter()
            .for_each(|part| member.extend_from_slice(part));
    }
}

fn foreign(why: &str) -> Error {
    Error::new(ErrorKind::WrongType, why)
}

fn unreadable(reply: &[u8]) -> Error {
    let shown = &reply[..reply.len().min(100)];
    Error::new(
        ErrorKind::Protocol,
        format!("a reply that cannot be read: {}", shown.escape_ascii()),
    )
}

fn head(bytes: &mut Vec<u8>, sign: u8, count: usize) {
    bytes.push(sign);
    bytes.extend_from_slice(Decimal::of(count as u64).digits());
    bytes.extend_from_slice(b"\r\n");
}

fn bulk(bytes: &mut Vec<u8>, text: &[u8]) {
    head(bytes, b'$', text.len());
    bytes.extend_from_slice(text);
    bytes.extend_from_slice(b"\r\n");
}

/// A text at the start of the bytes, and what follows it.
fn split_bulk(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\r')?;
    let length = std::str::from_utf8(bytes.get(1..end)?).ok()?.parse().ok()?;
    let (text, rest) = bytes.get(end + 2..)?.split_at_checked(length)?;
    Some((text, rest.get(2..)?))
}

/// A number as text, without an allocation.
struct Decimal {
    digits: [u8; 20],
    start: usize,
}

impl Decimal {
    fn of(mut number: u64) -> Decimal {
        let mut decimal = Decimal { digits: [0; 20], start: 20 };
        loop {
            decimal.start -= 1;
            decimal.digits[decimal.start] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return decimal;
            }
        }
    }

    fn digits(&self) -> &[u8] {
        &self.digits[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_everybody_writes_them() {
        for number in [0, 7, 10, 86_400_000, u64::MAX] {
            assert_eq!(Decimal::of(number).digits(), number.to_string().as_bytes());
        }
    }

    #[test]
    fn a_forbidden_command_is_found_by_its_line() {
        static SCRIPT: Script =
            Script::new("-- why\nlocal t = redis.pcall('TIME')\nreturn 1", || "00ff".to_owned());
        let found = |error| SCRIPT.command_of(error);
        assert_eq!(found("can't run this command script: 00ff, on @user_script:2."), Some("TIME"));
        assert_eq!(found("f_00ff): @user_script:2: @user_script: 2: can't run"), Some("TIME"));
        for other in ["", "on @user_script:3.", "on @user_script:99.", "on @user_script:x"] {
            assert_eq!(found(other), None, "{other}");
        }
    }

    #[test]
    fn calls_are_packed_as_the_crate_packs_them() {
        static SCRIPT: Script = Script::new("return 1", || "00ff".to_owned());
        let mut batch = Batch::default();
        batch.push(&SCRIPT, &[b"key", b"\0{}"], &[b"", b"30000"]);
        batch.push(&SCRIPT, &[b"other"], &[]);
        let mut first = redis::cmd("EVALSHA");
        first.arg("00ff").arg(2).arg(&b"key"[..]).arg(&b"\0{}"[..]).arg("").arg(30000);
        let mut second = redis::cmd("EVALSHA");
        second.arg("00ff").arg(1).arg("other");
        let both = [first.get_packed_command(), second.get_packed_command()].concat();
        assert_eq!(batch.bytes, both);
        assert_eq!(batch.only(&[1]).bytes, second.get_packed_command());
        assert_eq!([batch.key(0), batch.key(1)], [&b"key"[..], b"other"]);
        let asking = batch.asking(0);
        assert!(asking.bytes.ends_with(&first.get_packed_command()));
        assert_eq!((asking.calls.len(), asking.key(2)), (3, &b"key"[..]));
        assert_eq!(*batch.for_run(None).unwrap(), both);
    }

    #[test]
    fn a_guarded_call_tells_the_run_of_whichever_server_it_goes_to() {
        static SCRIPT: Script = Script::new("return 1", || "00ff".to_owned());
        let plain = || {
            let mut plain = Batch::default();
            plain.push(&SCRIPT, &[b"plain"], &[]);
            plain
        };
        let mut batch = Batch::default();
        let guarding = Guarding { marker: b"mark", longest: b"60000" };
        batch.push_guarded(&SCRIPT, &[b"key"], guarding, &[b"x"]);
        batch.push(&SCRIPT, &[b"longer than the first"], &[]);
        batch.push_guarded(&SCRIPT, &[b"other"], guarding, &[]);
        let refused = batch.for_run(None).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Protocol);
        for run in [[b'a'; 40], [b'b'; 40]] {
            let call = |key: &str, more: &[&str]| {
                let mut call = redis::cmd("EVALSHA");
                call.arg("00ff").arg(2).arg(key).arg("mark").arg(&run).arg(60_000).arg(more);
                call.get_packed_command()
            };
            let (one, two) = (call("key", &["x"]), call("other", &[]));
            let said = |batch: &Batch| batch.for_run(Some(&run)).unwrap().into_owned();
            let skipped = batch.only(&[2, 0]);
            assert_eq!(said(&skipped), [&two[..], &one].concat());
            let joined = said(&plain().and(&skipped));
            assert_eq!(joined, [&plain().bytes[..], &two, &one].concat());
        }
    }
}
