//! Calls of scripts, packed to be sent in one write.

use std::borrow::Cow;
use std::ops::Range;

use super::Format;
use super::keys::{slot, with_keys, write_marker};
use super::script::Script;
use crate::error::{Error, ErrorKind};
use crate::store::{Request, millis};

#[derive(Default)]
pub(in crate::store) struct Batch<'a> {
    pub(in crate::store::redis) bytes: Vec<u8>,
    pub(in crate::store::redis) calls: Vec<Call<'a>>,
    /// Of the only call, where the next one of its kind may begin with the same bytes.
    pub(super) head: Option<Head>,
    /// Where the run id of the server is written to which they are sent.
    pub(super) runs: Vec<usize>,
    /// It is for a server that has to be told so before each call.
    pub(in crate::store::redis) is_asking: bool,
    /// The name that all of it looks at.
    pub(in crate::store::redis) look: Option<&'a [u8]>,
}

/// What the bytes of a batch begin with.
pub(super) struct Head {
    pub(super) script: &'static Script,
    pub(super) keys: usize,
    /// How many arguments the call has.
    pub(super) args: usize,
    /// Where the lock's key stands.
    pub(super) lock: Range<usize>,
    pub(super) end: usize,
}

#[derive(Clone, Copy)]
pub(in crate::store) enum Arg<'a> {
    Text(&'a [u8]),
    Number(u64),
    /// With a space between any two.
    Words(&'a [Arg<'a>]),
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
    pub(in crate::store::redis) fn command(mut self, words: &[impl AsRef<[u8]>]) -> Batch<'a> {
        head(&mut self.bytes, b'*', words.len());
        words.iter().for_each(|word| bulk(&mut self.bytes, word.as_ref()));
        self.close(None, None, &[]);
        self
    }

    /// Packs a call straight into the bytes, up to its arguments: a command of the `redis` crate would
    /// be copied. `guarding` is what guard.lua is told besides the run id: its key, and the longest
    /// ttl. A key may come in parts. Tells where the first one stands.
    pub(super) fn open<const PARTS: usize>(
        &mut self,
        script: &'static Script,
        keys: &[[&[u8]; PARTS]],
        guarding: Option<(&[u8], u64)>,
        args: usize,
    ) -> Range<usize> {
        let more = usize::from(guarding.is_some());
        // Room for everyday names, so that packing them copies nothing twice.
        self.bytes.reserve(320);
        head(&mut self.bytes, b'*', 3 + keys.len() + args + 3 * more);
        self.bytes.extend_from_slice(b"$7\r\nEVALSHA\r\n");
        bulk(&mut self.bytes, script.digest().as_bytes());
        number(&mut self.bytes, (keys.len() + more) as u64);
        let mut first = 0..0;
        for key in keys {
            let length = key.iter().map(|part| part.len()).sum();
            head(&mut self.bytes, b'$', length);
            if first.is_empty() {
                first = self.bytes.len()..self.bytes.len() + length;
            }
            key.iter().for_each(|part| self.bytes.extend_from_slice(part));
            self.bytes.extend_from_slice(b"\r\n");
        }
        if let Some((marker, longest)) = guarding {
            bulk(&mut self.bytes, marker);
            bulk(&mut self.bytes, &[b'?'; RUN]);
            self.runs.push(self.bytes.len() - b"\r\n".len() - RUN);
            number(&mut self.bytes, longest);
        }
        first
    }

    pub(super) fn close(
        &mut self,
        script: Option<&'static Script>,
        request: Option<Request<'a>>,
        args: &[Arg<'_>],
    ) {
        args.iter().for_each(|arg| arg.pack(&mut self.bytes));
        let start = self.calls.last().map_or(0, |call| call.end);
        let end = self.bytes.len();
        self.calls.push(Call { script, request, start, end, is_awaited: false });
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
        // Before it stand EVALSHA, the digest and how many keys there are; or a command's own name.
        let before = if self.calls[index].script.is_some() { 3 } else { 1 };
        let rest = (0..before).try_fold(&call[head..], |rest, _| Some(split_bulk(rest)?.1));
        rest.and_then(split_bulk).map_or(&[], |(key, _)| key)
    }

    /// The name that a call takes or looks at; sent twice, both bring the same.
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

pub(in crate::store) struct Packer<'f, 'a> {
    format: &'f Format,
    /// There will be one call.
    is_lone: bool,
    name: &'a [u8],
    request: Option<Request<'a>>,
    pub(in crate::store) batch: Batch<'a>,
}

impl<'f, 'a> Packer<'f, 'a> {
    pub(in crate::store) fn new(format: &'f Format, calls: usize) -> Packer<'f, 'a> {
        Packer { format, is_lone: calls == 1, name: b"", request: None, batch: Batch::default() }
    }

    /// The next call is about this name. `request`: how the outbox knows it.
    pub(in crate::store) fn begin(&mut self, name: &'a [u8], request: Option<Request<'a>>) {
        (self.name, self.request) = (name, request);
    }

    /// A call with the first keys of the name: lock, side key, queue.
    pub(in crate::store) fn call(
        &mut self,
        script: &'static Script,
        keys: usize,
        args: &[Arg<'_>],
    ) {
        let Packer { format, is_lone, name, request, .. } = *self;
        let Format { prefix, guard, drafts, .. } = format;
        let guard = guard.filter(|_| script.is_guarded);
        if is_lone {
            self.batch = drafts.take(script, (keys, args.len()), (prefix, name));
        }
        if self.batch.head.is_none() {
            let lock = with_keys(prefix, name, |all| {
                let mut marker = Vec::new();
                let guarding = guard.map(|guard| {
                    write_marker(&mut marker, guard.clustered.then(|| slot(all[0][0])));
                    (&marker[..], millis(guard.max_ttl))
                });
                self.batch.open(script, &all[..keys], guarding, args.len())
            });
            let (args, end) = (args.len(), self.batch.bytes.len());
            self.batch.head = is_lone.then_some(Head { script, keys, args, lock, end });
        }
        self.batch.close(Some(script), request, args);
    }

    /// The same, followed by WAIT where replicas are waited for.
    pub(in crate::store) fn replicated(
        &mut self,
        script: &'static Script,
        keys: usize,
        args: &[Arg<'_>],
    ) {
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

impl Arg<'_> {
    fn len(&self) -> usize {
        match self {
            Arg::Text(text) => text.len(),
            Arg::Number(number) => number.checked_ilog10().unwrap_or(0) as usize + 1,
            Arg::Words(words) => {
                words.iter().map(Arg::len).sum::<usize>() + words.len().saturating_sub(1)
            }
        }
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        match *self {
            Arg::Text(text) => bytes.extend_from_slice(text),
            Arg::Number(number) => {
                bytes.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
            }
            Arg::Words(words) => {
                for (index, word) in words.iter().enumerate() {
                    bytes.extend_from_slice(&b" "[..index.min(1)]);
                    word.write(bytes);
                }
            }
        }
    }

    fn pack(&self, bytes: &mut Vec<u8>) {
        head(bytes, b'$', self.len());
        self.write(bytes);
        bytes.extend_from_slice(b"\r\n");
    }
}

fn head(bytes: &mut Vec<u8>, sign: u8, count: usize) {
    // Everyday counts have two digits at most.
    let [tens, ones] = [count / 10 % 10, count % 10].map(|digit| b'0' + digit as u8);
    match count {
        0..10 => bytes.extend_from_slice(&[sign, ones, b'\r', b'\n']),
        10..100 => bytes.extend_from_slice(&[sign, tens, ones, b'\r', b'\n']),
        _ => {
            bytes.push(sign);
            bytes.extend_from_slice(itoa::Buffer::new().format(count).as_bytes());
            bytes.extend_from_slice(b"\r\n");
        }
    }
}

fn bulk(bytes: &mut Vec<u8>, text: &[u8]) {
    Arg::Text(text).pack(bytes);
}

fn number(bytes: &mut Vec<u8>, value: u64) {
    Arg::Number(value).pack(bytes);
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

    fn push<const PARTS: usize>(
        batch: &mut Batch<'_>,
        script: &'static Script,
        keys: &[[&[u8]; PARTS]],
        guarding: Option<(&[u8], u64)>,
        args: &[Arg<'_>],
    ) {
        batch.open(script, keys, guarding, args.len());
        batch.close(Some(script), None, args);
    }

    #[test]
    fn calls_are_packed_as_the_crate_packs_them() {
        let mut batch = Batch::default();
        let words = [Arg::Number(0), Arg::Text(b"x"), Arg::Number(u64::MAX)];
        let args = [Arg::Text(b""), Arg::Number(30_000), Arg::Words(&words), Arg::Words(&[])];
        push(&mut batch, &SCRIPT, &[[b"ke", b"y"], [b"\0{}", b""]], None, &args);
        push(&mut batch, &SCRIPT, &[[b"other"]], None, &[]);
        let mut first = redis::cmd("EVALSHA");
        first.arg(SCRIPT.digest()).arg(2).arg(&b"key"[..]).arg(&b"\0{}"[..]).arg("").arg(30000);
        first.arg(format!("0 x {}", u64::MAX)).arg("");
        let mut second = redis::cmd("EVALSHA");
        second.arg(SCRIPT.digest()).arg(1).arg("other");
        let both = [first.get_packed_command(), second.get_packed_command()].concat();
        assert_eq!(batch.bytes, both);
        assert_eq!(batch.only(&[1]).bytes, second.get_packed_command());
        assert_eq!([batch.key(0), batch.key(1)], [&b"key"[..], b"other"]);
        assert_eq!(Batch::default().command(&["GET", "k"]).key(0), b"k");
        let asking = batch.asking(0);
        assert!(asking.bytes.ends_with(&first.get_packed_command()));
        assert_eq!((asking.calls.len(), asking.key(2)), (3, &b"key"[..]));
        assert_eq!(*batch.for_run(None).unwrap(), both);
    }

    #[test]
    fn a_guarded_call_tells_the_run_of_whichever_server_it_goes_to() {
        let plain = || {
            let mut plain = Batch::default();
            push(&mut plain, &SCRIPT, &[[b"plain"]], None, &[]);
            plain
        };
        let mut batch = Batch::default();
        let guarding = Some((&b"mark"[..], 60_000));
        push(&mut batch, &GUARDED, &[[b"key"]], guarding, &[Arg::Text(b"x")]);
        push(&mut batch, &SCRIPT, &[[b"longer than the first"]], None, &[]);
        push(&mut batch, &GUARDED, &[[b"other"]], guarding, &[]);
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
