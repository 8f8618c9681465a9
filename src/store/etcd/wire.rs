//! One connection in gRPC over HTTP/2: streams of messages out and in, each step by a deadline. One
//! thread at a time uses it, so there is neither a runtime nor a thread of its own.

mod call;

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use self::call::Call;
use super::fault::End;
use super::proto::Message;
use super::{fault, hpack};
use crate::clock::{Deadline, Moment};
use crate::error::{Error, ErrorKind};
use crate::store::Failure;
use crate::store::net::dial::Show;
use crate::store::net::stranger::Kind;
use crate::store::net::stream::{LEAST, Stream};

pub(super) struct Wire {
    stream: Stream,
    /// Which of the hosts it leads to.
    pub(super) member: usize,
    pub(super) made: Moment,
    /// When something last came.
    pub(super) heard: Moment,
    /// What each request begins with: where it goes.
    head: Vec<u8>,
    /// By which the server knows our user.
    pub(super) token: Option<String>,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    last: u32,
    calls: BTreeMap<u32, Call>,
    /// A list of headers that has not come whole, and whether its stream ends with it.
    list: Option<(u32, bool, Vec<u8>)>,
    /// How many bytes may go out, on the connection and on a new stream.
    window: i64,
    first_window: i64,
    /// So many streams it takes at a time.
    pub(super) most_streams: usize,
    /// So many came since the server was last told that it may go on.
    read: u32,
    /// The last stream that the server has served, where it serves no others.
    goes_away: Option<u32>,
    /// Of no use any more.
    pub(super) is_broken: bool,
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FRAME: usize = 9;
/// The longest frame that either side may send.
const LONGEST_FRAME: usize = 16_384;
/// No message that is meant for us is longer.
const LONGEST: usize = 4 * 1024 * 1024;
/// The window for what comes. It is opened anew after so many bytes.
const WINDOW: u32 = 1 << 30;
const REOPEN: u32 = 1 << 20;
/// Streams have numbers up to 2^31, two apart: another connection is made long before.
const LAST_STREAM: u32 = 1 << 30;
/// What lies there already is read so often at most before something else is done.
const MOST_READS: u32 = 64;
/// No more than this is kept back of what the server is to be told when there is time.
const MOST_OWED: usize = 4096;
/// By then an answer has come, if nothing is slow.
const SOON: Duration = Duration::from_millis(50);

// Kinds of frames, and their flags.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END: u8 = 1;
const ACK: u8 = 1;
const END_LIST: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 32;

impl Wire {
    pub(super) fn new(stream: Stream, member: usize, head: Vec<u8>) -> Wire {
        let mut wire = Wire {
            stream,
            member,
            made: Moment::now(),
            heard: Moment::ZERO,
            head,
            token: None,
            inbox: Vec::new(),
            outbox: PREFACE.to_vec(),
            last: 0,
            calls: BTreeMap::new(),
            list: None,
            window: 65_535,
            first_window: 65_535,
            most_streams: 100,
            read: 0,
            goes_away: None,
            is_broken: false,
        };
        let setting =
            |number: u16, value: u32| [&number.to_be_bytes()[..], &value.to_be_bytes()].concat();
        // No table of headers, no pushes, and wide windows.
        let settings = [setting(1, 0), setting(2, 0), setting(4, WINDOW)].concat();
        wire.frame(SETTINGS, 0, 0, &settings);
        wire.frame(WINDOW_UPDATE, 0, 0, &(WINDOW - 65_535).to_be_bytes());
        wire
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, body: &[u8]) {
        let length = (body.len() as u32).to_be_bytes();
        self.outbox.extend_from_slice(&length[1..]);
        self.outbox.extend_from_slice(&[kind, flags]);
        self.outbox.extend_from_slice(&stream.to_be_bytes());
        self.outbox.extend_from_slice(body);
    }

    /// Begins a call; returns the number of its stream.
    pub(super) fn begin(&mut self, path: &str) -> u32 {
        let stream = if self.last == 0 { 1 } else { self.last + 2 };
        self.last = stream;
        let mut list = Vec::with_capacity(self.head.len() + 200);
        list.extend_from_slice(&self.head);
        hpack::write(&mut list, ":path", path);
        hpack::write(&mut list, "content-type", "application/grpc");
        hpack::write(&mut list, "te", "trailers");
        // A member that has lost the others says so instead of waiting for them.
        hpack::write(&mut list, "hasleader", "true");
        if let Some(token) = &self.token {
            hpack::write(&mut list, "token", token);
        }
        self.frame(HEADERS, END_LIST, stream, &list);
        // What comes after the last that is served is never answered.
        let end = self.goes_away.filter(|last| stream > *last).map(|_| End::Refused);
        self.calls.insert(stream, Call { window: self.first_window, end, ..Call::default() });
        stream
    }

    /// Has a message go out on a stream with what is sent next, as soon as the server has room for it.
    pub(super) fn write(&mut self, stream: u32, message: &Message, is_last: bool) {
        let Some(call) = self.calls.get_mut(&stream) else { return };
        let length = (message.0.len() as u32).to_be_bytes();
        call.outbox = [&call.outbox[..], &[0], &length, &message.0].concat();
        call.is_last = is_last;
    }

    /// Has the server say something at once, whatever else it is busy with: a change of no settings is
    /// acknowledged. A ping is, too, but an etcd hangs up after a few of them.
    pub(super) fn probe(&mut self) {
        self.frame(SETTINGS, 0, 0, b"");
    }

    pub(super) fn show(&self, show: &Show<'_>) -> Result<(), Error> {
        self.stream.show(show)
    }

    /// Passes on what the server has room for.
    fn fill(&mut self) {
        let goes = |call: &Call| call.window > 0 && !call.outbox.is_empty();
        while self.window > 0
            && let Some((&stream, call)) = self.calls.iter_mut().find(|(_, call)| goes(call))
        {
            let room = self.window.min(call.window).min(LONGEST_FRAME as i64) as usize;
            let later = call.outbox.split_off(room.min(call.outbox.len()));
            let now = std::mem::replace(&mut call.outbox, later);
            self.window -= now.len() as i64;
            call.window -= now.len() as i64;
            let is_end = call.is_last && call.outbox.is_empty();
            self.frame(DATA, if is_end { END } else { 0 }, stream, &now);
        }
    }

    /// On an error, tells whether anything had gone out. What has not is sent next.
    pub(super) fn send(&mut self, deadline: Deadline) -> Result<(), (bool, Error)> {
        self.fill();
        if self.is_all_sent() {
            return Ok(());
        }
        let sent = self.stream.send(&self.outbox, deadline);
        self.is_broken |= sent.is_err();
        let count = sent.as_ref().map_or_else(|(count, _)| *count, |()| self.outbox.len());
        self.outbox.drain(..count);
        sent.map_err(|(count, error)| (count > 0, fault::io("sending", &error)))
    }

    /// Sends what goes out by then, and the rest later.
    pub(super) fn send_some(&mut self, deadline: Deadline) -> Result<(), Error> {
        match self.send(deadline) {
            Err((_, error)) if error.kind() == ErrorKind::NoAnswer => {
                self.is_broken = false;
                Ok(())
            }
            done => done.map_err(|(_, error)| error),
        }
    }

    pub(super) fn is_all_sent(&self) -> bool {
        self.outbox.is_empty()
    }

    /// One request with one answer.
    pub(super) fn call(
        &mut self,
        path: &str,
        message: &Message,
        deadline: Deadline,
    ) -> Result<(Vec<u8>, Moment), Failure> {
        let stream = self.begin(path);
        let sent = Moment::now();
        self.write(stream, message, true);
        let failed = |(is_out, error)| Failure { error, sent: Some(sent).filter(|_| is_out) };
        self.send(deadline).map_err(failed)?;
        let answered = self.receive(stream, deadline);
        self.calls.remove(&stream);
        match answered.map_err(|error| Failure::unknown(error, sent))? {
            Ok(answer) => Ok((answer, sent)),
            Err(end) => Err(fault::ended(&end, sent)),
        }
    }

    /// The next message of a stream, or how it has ended.
    pub(super) fn receive(
        &mut self,
        stream: u32,
        deadline: Deadline,
    ) -> Result<Result<Vec<u8>, End>, Error> {
        loop {
            if let Some(next) = self.next(stream)? {
                return Ok(next);
            }
            // A server measures the way to us with each request. What it is told of that goes out with the
            // next one, if the answer comes soon: by itself it costs as much as a request.
            let is_whole = self.calls.values().all(|call| call.outbox.is_empty());
            let may_wait = is_whole && (1..MOST_OWED).contains(&self.outbox.len());
            if !may_wait || !self.read_soon(SOON.min(deadline.left()))? {
                self.send(deadline).map_err(|(_, error)| error)?;
                self.read(deadline)?;
            }
        }
    }

    /// The same of what has come already.
    pub(super) fn next(&mut self, stream: u32) -> Result<Option<Result<Vec<u8>, End>>, Error> {
        let Some(call) = self.calls.get_mut(&stream) else { return Ok(Some(Err(End::Reset))) };
        if let Some(([packed, length @ ..], rest)) = call.inbox.rest().split_first_chunk::<5>() {
            let length = u32::from_be_bytes(*length) as usize;
            if length > LONGEST || *packed != 0 {
                self.is_broken = true;
                return Err(fault::foreign());
            }
            if let Some(message) = rest.get(..length).map(<[u8]>::to_vec) {
                call.inbox.taken(5 + length);
                return Ok(Some(Ok(message)));
            }
        }
        Ok(call.end.clone().map(Err))
    }

    /// Nobody asks for the rest of a stream.
    pub(super) fn leave(&mut self, stream: u32) {
        if self.calls.remove(&stream).is_some_and(|call| call.end.is_none()) {
            // 8: it is not needed any more.
            self.frame(RESET, 0, stream, &8u32.to_be_bytes());
        }
    }

    /// Whether the server has closed it, or is about to, while it lay unused.
    pub(super) fn is_stale(&mut self, now: Moment) -> bool {
        self.is_broken |= self.stream.is_stale(now, true);
        let is_over = self.goes_away.is_some() || self.last > LAST_STREAM;
        self.is_broken || is_over || self.glance().is_err()
    }

    /// Reads what lies there already.
    pub(super) fn glance(&mut self) -> Result<(), Error> {
        for _ in 0..MOST_READS {
            if self.stream.is_silent() || !self.read_soon(LEAST)? {
                break;
            }
        }
        Ok(())
    }

    /// Reads what comes soon; `false` if nothing does.
    fn read_soon(&mut self, soon: Duration) -> Result<bool, Error> {
        match self.read(Deadline::after(soon)) {
            Err(error) if error.kind() == ErrorKind::NoAnswer => {
                self.is_broken = false;
                Ok(false)
            }
            done => done.map(|()| true),
        }
    }

    /// Reads what comes by then, and no more of it than there is room for.
    fn read(&mut self, deadline: Deadline) -> Result<(), Error> {
        let mut room = [0; LONGEST_FRAME];
        let count = match self.stream.read(&mut room, deadline) {
            Ok(0) => Err(fault::io("the answer", &io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => Ok(count),
            Err(error) => Err(self.stream.explain("the answer", &error)),
        };
        self.is_broken |= count.is_err();
        let count = count.map_err(|error| self.stream.doubt(Kind::Etcd, error))?;
        self.inbox.extend_from_slice(&room[..count]);
        self.heard = Moment::now();
        let inbox = std::mem::take(&mut self.inbox);
        let mut rest = &inbox[..];
        while let Some(frame) = rest.first_chunk::<FRAME>() {
            let length = u32::from_be_bytes([0, frame[0], frame[1], frame[2]]) as usize;
            let stream = u32::from_be_bytes([frame[5] & 127, frame[6], frame[7], frame[8]]);
            if length > LONGEST_FRAME {
                self.is_broken = true;
                return Err(self.stream.doubt(Kind::Etcd, fault::foreign()));
            }
            let Some(body) = rest.get(FRAME..FRAME + length) else { break };
            if self.accept((frame[3], frame[4]), stream, body).is_none() {
                self.is_broken = true;
                return Err(self.stream.doubt(Kind::Etcd, fault::foreign()));
            }
            rest = &rest[FRAME + length..];
        }
        self.inbox = rest.to_vec();
        Ok(())
    }

    /// One frame; `None` if there is no such thing in HTTP/2.
    fn accept(&mut self, (kind, flags): (u8, u8), stream: u32, body: &[u8]) -> Option<()> {
        let number = |at: usize| Some(u32::from_be_bytes(*body.get(at..)?.first_chunk()?));
        match kind {
            DATA => {
                self.read += body.len() as u32;
                if self.read > REOPEN {
                    let read = std::mem::take(&mut self.read);
                    self.frame(WINDOW_UPDATE, 0, 0, &read.to_be_bytes());
                }
                let data = unpadded(flags, body)?;
                // What comes on a stream that was left is of no use.
                let Some(call) = self.calls.get_mut(&stream) else { return Some(()) };
                call.inbox.came(data);
                if call.inbox.rest().len() > 2 * LONGEST {
                    return None;
                }
                call.read += body.len() as u32;
                if flags & END != 0 {
                    call.ended();
                } else if call.read > REOPEN {
                    let read = std::mem::take(&mut call.read);
                    self.frame(WINDOW_UPDATE, 0, stream, &read.to_be_bytes());
                }
            }
            HEADERS => {
                let list = unpadded(flags, body)?;
                let list = if flags & PRIORITY != 0 { list.get(5..)? } else { list };
                self.list = Some((stream, flags & END != 0, list.to_vec()));
                self.accept_list(flags)?;
            }
            CONTINUATION => {
                let (of, _, list) = self.list.as_mut()?;
                if *of != stream || list.len() > LONGEST_FRAME * 4 {
                    return None;
                }
                list.extend_from_slice(body);
                self.accept_list(flags)?;
            }
            RESET => {
                // 7: refused, before anything was done.
                let end = if number(0)? == 7 { End::Refused } else { End::Reset };
                if let Some(call) = self.calls.get_mut(&stream) {
                    call.ends(end);
                }
            }
            SETTINGS if flags & ACK == 0 => {
                for setting in body.chunks_exact(6) {
                    let value = i64::from(u32::from_be_bytes(*setting.last_chunk()?));
                    match setting[..2] {
                        [0, 3] => self.most_streams = value.max(1) as usize,
                        [0, 4] => {
                            let more = value - std::mem::replace(&mut self.first_window, value);
                            self.calls.values_mut().for_each(|call| call.window += more);
                        }
                        _ => {}
                    }
                }
                self.frame(SETTINGS, ACK, 0, b"");
            }
            PING if body.len() != 8 => return None,
            PING if flags & ACK == 0 => self.frame(PING, ACK, 0, body),
            GO_AWAY => {
                let last = number(0)?;
                self.goes_away = Some(last);
                for (_, call) in self.calls.range_mut(last.saturating_add(1)..) {
                    call.ends(End::Refused);
                }
            }
            WINDOW_UPDATE => {
                let more = i64::from(number(0)? & 0x7fff_ffff);
                if stream == 0 {
                    self.window += more;
                } else if let Some(call) = self.calls.get_mut(&stream) {
                    call.window += more;
                }
            }
            _ => {}
        }
        Some(())
    }

    /// A list of headers, if it has come whole.
    fn accept_list(&mut self, flags: u8) -> Option<()> {
        if flags & END_LIST == 0 {
            return Some(());
        }
        let (stream, is_end, list) = self.list.take()?;
        let mut unheard = Call::default();
        let call = self.calls.get_mut(&stream).unwrap_or(&mut unheard);
        hpack::read(&list, |name, value| {
            let text = || String::from_utf8_lossy(value).into_owned();
            match name {
                b"grpc-status" => call.code = text().parse().ok(),
                b"grpc-message" => call.message = text(),
                b":status" if value != b"200" => {
                    (call.code, call.message) = (Some(2), format!("HTTP status {}", text()));
                }
                _ => {}
            }
        })?;
        if is_end {
            call.ended();
        }
        Some(())
    }
}

fn unpadded(flags: u8, body: &[u8]) -> Option<&[u8]> {
    if flags & PADDED == 0 {
        return Some(body);
    }
    let (padding, rest) = body.split_first()?;
    rest.get(..rest.len().checked_sub(usize::from(*padding))?)
}

#[cfg(test)]
mod tests;
