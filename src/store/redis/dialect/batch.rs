//! Calls of scripts, packed to be sent in one write.

use std::borrow::Cow;

use super::Format;
use super::keys::{Keys, slot, write_marker};
use super::script::Script;
use crate::error::{Error, ErrorKind};
use crate::store::{Request, millis};

#[derive(Default)]
pub(in crate::store::redis) struct Batch<'a> {
    pub(in crate::store::redis) bytes: Vec<u8>,
    pub(in crate::store::redis) calls: Vec<Call<'a>>,
    /// Where the run id of the server is written to which they are sent.
    runs: Vec<usize>,
    /// It is for a server that has to be told so before each call.
    pub(in crate::store::redis) is_asking: bool,
    /// The name that all of it looks at.
    pub(in crate::store::redis) look: Option<&'a [u8]>,
}

#[derive(Clone, Copy)]
pub(super) enum Arg<'a> {
    Text(&'a [u8]),
    Number(u64),
}

#[derive(Clone)]
pub(in crate::store::redis) struct Call<'a> {
    /// None where it is another command.
    pub(in crate::store::redis) script: Option<&'static Script>,
    /// The same as the outbox knows it.
    pub(in crate::store::redis) request: Option<Request<'a>>,
    start: usize,
    end: usize,
    /// WAIT stands behind it, and its reply comes behind the script's.
    pub(in crate::store::redis) is_awaited: bool,
}

/// What a server calls itself from its start to its end.
pub(in crate::store::redis) type RunId = [u8; 40];

const RUN: usize = size_of::<RunId>();

impl<'a> Batch<'a> {
    /// A command that is no call of a script.
    pub(in crate::store::redis) fn command(mut self, words: &[&str]) -> Batch<'a> {
        let start = self.bytes.len();
        head(&mut self.bytes, b'*', words.len());
        words.iter().for_each(|word| bulk(&mut self.bytes, word.as_bytes()));
        self.end(start, None, None);
        self
    }

    /// Packs a call straight into the bytes: a command of the `redis` crate would be copied.
    /// `guarding` is what guard.lua is told besides the run id: its key, and the longest ttl.
    pub(super) fn push(
        &mut self,
        script: &'static Script,
        request: Option<Request<'a>>,
        keys: &[&[u8]],
        guarding: Option<(&[u8], u64)>,
        args: &[Arg<'_>],
    ) {
        let start = self.bytes.len();
        let more = usize::from(guarding.is_some());
        head(&mut self.bytes, b'*', 3 + keys.len() + args.len() + 3 * more);
        bulk(&mut self.bytes, b"EVALSHA");
        bulk(&mut self.bytes, script.digest().as_bytes());
        number(&mut self.bytes, (keys.len() + more) as u64);
        keys.iter().for_each(|key| bulk(&mut self.bytes, key));
        if let Some((marker, longest)) = guarding {
            bulk(&mut self.bytes, marker);
            bulk(&mut self.bytes, &[b'?'; RUN]);
            self.runs.push(self.bytes.len() - b"\r\n".len() - RUN);
            number(&mut self.bytes, longest);
        }
        for arg in args {
            match *arg {
                Arg::Text(text) => bulk(&mut self.bytes, text),
                Arg::Number(value) => number(&mut self.bytes, value),
            }
        }
        self.end(start, Some(script), request);
    }

    fn end(&mut self, start: usize, script: Option<&'static Script>, of: Option<Request<'a>>) {
        let end = self.bytes.len();
        self.calls.push(Call { script, request: of, start, end, is_awaited: false });
    }

    pub(in crate::store::redis) fn replies(&self) -> usize {
        self.calls.len() + self.calls.iter().filter(|call| call.is_awaited).count()
    }

    /// The scripts that its calls need, and those that follow them.
    pub(in crate::store::redis) fn scripts(&self) -> impl Iterator<Item = &'static Script> {
        let scripts = self.calls.iter().filter_map(|call| call.script);
        scripts.flat_map(|script| std::iter::successors(Some(script), |one| one.follower))
    }

    pub(in crate::store::redis) fn loads(&self) -> Batch<'static> {
        let mut sources: Vec<_> = self.scripts().map(|script| script.source).collect();
        sources.sort_unstable();
        sources.dedup();
        let load = |batch: Batch<'static>, source| batch.command(&["SCRIPT", "LOAD", source]);
        sources.into_iter().fold(Batch::default(), load)
    }

    pub(in crate::store::redis) fn for_run(
        &self,
        run: Option<&RunId>,
    ) -> Result<Cow<'_, [u8]>, Error> {
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

    pub(in crate::store::redis) fn only(&self, indices: &[usize]) -> Batch<'a> {
        let Batch { is_asking, look, .. } = *self;
        let mut batch = Batch { is_asking, look, ..Batch::default() };
        indices.iter().for_each(|index| batch.add(self, &self.calls[*index]));
        batch
    }

    pub(in crate::store::redis) fn and(mut self, other: &Batch<'a>) -> Batch<'a> {
        other.calls.iter().for_each(|call| self.add(other, call));
        self
    }

    /// The first key of one of its calls; all others of that call lie in the same slot.
    pub(in crate::store::redis) fn key(&self, index: usize) -> &[u8] {
        let Call { start, end, .. } = self.calls[index];
        let call = &self.bytes[start..end];
        let head = call.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        // Before it stand EVALSHA, the digest and how many keys there are.
        let rest = (0..3).try_fold(&call[head..], |rest, _| Some(split_bulk(rest)?.1));
        rest.and_then(split_bulk).map_or(&[], |(key, _)| key)
    }

    /// The name that a call takes or looks at; both may be sent twice without a change of what they
    /// bring.
    pub(in crate::store::redis) fn sees(&self, index: usize) -> Option<&'a [u8]> {
        match self.calls[index].request {
            Some(Request::Take { name, .. }) => Some(name),
            Some(Request::Extend { .. } | Request::Give { .. }) => None,
            None => self.look,
        }
    }

    /// One of the calls for a server to which its slot is only about to come: ASKING has to stand
    /// before each call. Nothing may come between the two, so the script is loaded first. The
    /// answer to the call is the last one.
    pub(in crate::store::redis) fn asking(&self, index: usize) -> Batch<'a> {
        let call = &self.calls[index];
        let source = call.script.map_or("", |script| script.source);
        let mut batch = Batch { is_asking: true, look: self.sees(index), ..Batch::default() }
            .command(&["SCRIPT", "LOAD", source])
            .command(&["ASKING"]);
        batch.add(self, &Call { request: None, ..call.clone() });
        batch
    }

    fn add(&mut self, other: &Batch<'_>, call: &Call<'a>) {
        let start = self.bytes.len();
        self.bytes.extend(&other.bytes[call.start..call.end]);
        // They lie in order, and there can be as many as a Cluster has slots.
        let first = other.runs.partition_point(|at| *at < call.start);
        let runs = other.runs[first..].iter().take_while(|at| **at < call.end);
        self.runs.extend(runs.map(|at| at - call.start + start));
        self.calls.push(Call { start, end: self.bytes.len(), ..call.clone() });
    }
}

pub(super) struct Packer<'f, 'a> {
    format: &'f Format,
    keys: Keys,
    marker: Vec<u8>,
    request: Option<Request<'a>>,
    pub(super) batch: Batch<'a>,
}

impl<'f, 'a> Packer<'f, 'a> {
    pub(super) fn new(format: &'f Format, calls: usize) -> Packer<'f, 'a> {
        // Room for everyday names, so that packing them copies nothing twice.
        let (bytes, calls) = (Vec::with_capacity(calls * 320), Vec::with_capacity(calls));
        let batch = Batch { bytes, calls, ..Batch::default() };
        Packer { format, keys: Keys::new(), marker: Vec::new(), request: None, batch }
    }

    pub(super) fn begin(&mut self, name: &[u8], request: Option<Request<'a>>) {
        self.request = request;
        self.keys.write(&self.format.prefix, name);
        if let Some(guard) = self.format.guard {
            write_marker(&mut self.marker, guard.clustered.then(|| slot(&self.keys.lock)));
        }
    }

    /// A call with the first keys of the name: lock, side key, queue.
    pub(super) fn call(&mut self, script: &'static Script, keys: usize, args: &[Arg<'_>]) {
        let Keys { lock, side, queue } = &self.keys;
        let all: [&[u8]; 3] = [lock, side, queue];
        let guard = self.format.guard.filter(|_| script.is_guarded);
        let guarding = guard.map(|guard| (&self.marker[..], millis(guard.max_ttl)));
        self.batch.push(script, self.request, &all[..keys], guarding, args);
    }

    /// The same, followed by WAIT where replicas are waited for.
    pub(super) fn replicated(&mut self, script: &'static Script, keys: usize, args: &[Arg<'_>]) {
        self.call(script, keys, args);
        if let (Some(copies), Some(call)) = (self.format.copies, self.batch.calls.last_mut()) {
            let bytes = &mut self.batch.bytes;
            head(bytes, b'*', 3);
            bulk(bytes, b"WAIT");
            number(bytes, copies.count.into());
            // 0 would wait for ever.
            number(bytes, millis(copies.patience).max(1));
            (call.end, call.is_awaited) = (bytes.len(), true);
        }
    }
}

fn head(bytes: &mut Vec<u8>, sign: u8, count: usize) {
    bytes.push(sign);
    bytes.extend_from_slice(itoa::Buffer::new().format(count).as_bytes());
    bytes.extend_from_slice(b"\r\n");
}

fn bulk(bytes: &mut Vec<u8>, text: &[u8]) {
    head(bytes, b'$', text.len());
    bytes.extend_from_slice(text);
    bytes.extend_from_slice(b"\r\n");
}

fn number(bytes: &mut Vec<u8>, value: u64) {
    bulk(bytes, itoa::Buffer::new().format(value).as_bytes());
}

fn split_bulk(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\r')?;
    let length = std::str::from_utf8(bytes.get(1..end)?).ok()?.parse().ok()?;
    let (text, rest) = bytes.get(end + 2..)?.split_at_checked(length)?;
    Some((text, rest.get(2..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    static SCRIPT: Script = Script::new("return 1");
    static GUARDED: Script = Script::new("return 2").guarded();

    #[test]
    fn calls_are_packed_as_the_crate_packs_them() {
        let mut batch = Batch::default();
        let args = [Arg::Text(b""), Arg::Number(30_000)];
        batch.push(&SCRIPT, None, &[b"key", b"\0{}"], None, &args);
        batch.push(&SCRIPT, None, &[b"other"], None, &[]);
        let mut first = redis::cmd("EVALSHA");
        first.arg(SCRIPT.digest()).arg(2).arg(&b"key"[..]).arg(&b"\0{}"[..]).arg("").arg(30000);
        let mut second = redis::cmd("EVALSHA");
        second.arg(SCRIPT.digest()).arg(1).arg("other");
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
        let plain = || {
            let mut plain = Batch::default();
            plain.push(&SCRIPT, None, &[b"plain"], None, &[]);
            plain
        };
        let mut batch = Batch::default();
        let guarding = Some((&b"mark"[..], 60_000));
        batch.push(&GUARDED, None, &[b"key"], guarding, &[Arg::Text(b"x")]);
        batch.push(&SCRIPT, None, &[b"longer than the first"], None, &[]);
        batch.push(&GUARDED, None, &[b"other"], guarding, &[]);
        let refused = batch.for_run(None).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Protocol);
        for run in [[b'a'; 40], [b'b'; 40]] {
            let call = |key: &str, more: &[&str]| {
                let mut call = redis::cmd("EVALSHA");
                call.arg(GUARDED.digest()).arg(2).arg(key).arg("mark");
                call.arg(&run).arg(60_000).arg(more).get_packed_command()
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
