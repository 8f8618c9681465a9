//! One connection in MySQL's protocol: packets out, packets in, each by a deadline.

use std::io;
use std::sync::Arc;

use super::fault;
use super::statements::{CHECK_VERSION, Values, packet};
use crate::clock::{Deadline, Moment};
use crate::config::Login;
use crate::error::{Error, ErrorKind};
use crate::store::ServerId;
use crate::store::net::pool;
use crate::store::net::seat::Line;
use crate::store::net::stream::Stream;
use crate::store::schema::CHECKED_FOR;

/// A seat for one, in use.
pub(super) type Lent<'a> = pool::Lent<'a, Wire>;

pub(super) struct Wire {
    pub(super) stream: Stream,
    pub(super) server: ServerId,
    /// What has come, and how much of it was read.
    inbox: Vec<u8>,
    read: usize,
    /// What is to go out.
    outbox: Vec<u8>,
    /// The number of the next packet.
    sequence: u8,
    /// When it last saw that the tables have the version that is known here.
    checked: Moment,
    /// Whether the request that was sent last looks at it again.
    checks: bool,
    /// What it logged in with, where that can change.
    pub(super) login: Option<Arc<Login>>,
}

/// No packet that is meant for us is longer, nor are all that answer one request.
const LONGEST: usize = 64 * 1024;
const MOST: usize = 1024 * 1024;
/// What is kept of a packet besides its bytes.
const PACKET_ROOM: usize = 32;

const INBOX: usize = 4096;

/// What the server says to one statement.
#[derive(Default)]
pub(super) struct Said {
    pub(super) changed: u64,
    pub(super) id: u64,
    pub(super) rows: Vec<Row>,
}

/// A row of an answer, as text.
pub(super) struct Row(Vec<Option<Vec<u8>>>);

/// A statement was refused, and those behind it were not carried out.
pub(super) struct Refusal {
    pub(super) code: u16,
    pub(super) error: Error,
}

pub(super) type Answers = (Vec<Said>, Option<Refusal>);

impl Line for Wire {
    fn is_stale(&mut self, now: Moment) -> bool {
        let is_retired = self.login.as_ref().is_some_and(|login| login.is_retired());
        is_retired || self.stream.is_stale(now, false)
    }

    fn send(&mut self, deadline: Deadline) -> Result<(), (bool, Error)> {
        let bytes = std::mem::take(&mut self.outbox);
        let sent = self.stream.send(&bytes, deadline);
        sent.map_err(|(count, error)| (count > 0, fault::io("sending", &error)))
    }
}

impl Wire {
    pub(super) fn new(stream: Stream, server: ServerId) -> Wire {
        let (inbox, read, outbox, sequence, checks, login) = Default::default();
        let checked = Moment::now();
        Wire { stream, server, inbox, read, outbox, sequence, checked, checks, login }
    }

    /// Has a packet go out with what is sent next.
    pub(super) fn write(&mut self, payload: &[u8]) -> Result<(), Error> {
        let length = u32::try_from(payload.len()).ok().filter(|length| *length < 0xff_ffff);
        let Some(length) = length else {
            return Err(Error::new(ErrorKind::BadArgument, "the statement is too long"));
        };
        self.outbox.extend_from_slice(&length.to_le_bytes()[..3]);
        self.outbox.push(self.sequence);
        self.outbox.extend_from_slice(payload);
        self.sequence = self.sequence.wrapping_add(1);
        Ok(())
    }

    /// The same of statements, with `;` between them.
    pub(super) fn query(&mut self, text: &str) -> Result<(), Error> {
        self.sequence = 0;
        self.write(&[b"\x03", text.as_bytes()].concat())
    }

    /// The same, and has the server carry out nothing if the tables have another version by now, where
    /// this connection was not told so lately.
    pub(super) fn query_checked(&mut self, text: &str, now: Moment) -> Result<(), Error> {
        self.checks = now.since(self.checked) >= CHECKED_FOR;
        if !self.checks {
            return self.query(text);
        }
        let mut checked = packet(&[CHECK_VERSION], &Values::default());
        checked.push(';');
        self.query(&(checked + text))
    }

    /// What the server says to that; `None` where it has carried out nothing since the tables have no
    /// version that is known here, or since nobody can tell.
    pub(super) fn answers_checked(
        &mut self,
        sent: Moment,
        deadline: Deadline,
    ) -> Result<Option<Answers>, Error> {
        let (mut said, refused) = self.answers(deadline)?;
        let is_passing = refused.as_ref().is_some_and(|it| fault::is_passing(it.code));
        if !self.checks || said.is_empty() && is_passing {
            return Ok(Some((said, refused)));
        }
        if said.is_empty() {
            return Ok(None);
        }
        said.remove(0);
        self.checked = sent;
        Ok(Some((said, refused)))
    }

    /// Statements, and all that is said to them.
    pub(super) fn ask(&mut self, text: &str, deadline: Deadline) -> Result<Answers, Error> {
        self.query(text)?;
        self.send(deadline).map_err(|(_, error)| error)?;
        self.answers(deadline)
    }

    /// The payload of the next packet. After an error the connection is of no use any more.
    pub(super) fn packet(&mut self, deadline: Deadline) -> Result<Vec<u8>, Error> {
        let head = self.bytes(4, deadline)?;
        let length = usize::from(head[0]) | usize::from(head[1]) << 8 | usize::from(head[2]) << 16;
        self.sequence = head[3].wrapping_add(1);
        if length > LONGEST {
            return Err(unexpected("something that is not MySQL's, or too much"));
        }
        self.bytes(length, deadline)
    }

    fn bytes(&mut self, count: usize, deadline: Deadline) -> Result<Vec<u8>, Error> {
        loop {
            if let Some(found) = self.inbox.get(self.read..self.read + count) {
                let found = found.to_vec();
                self.read += count;
                return Ok(found);
            }
            self.inbox.drain(..self.read);
            self.read = 0;
            let mut room = [0; INBOX];
            match self.stream.read(&mut room, deadline) {
                Ok(0) => return Err(fault::io("the answer", &io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => self.inbox.extend_from_slice(&room[..count]),
                Err(error) => return Err(self.stream.explain("the answer", &error)),
            }
        }
    }

    /// Whether the server has said more than what was read.
    pub(super) fn has_more(&self) -> bool {
        self.read < self.inbox.len()
    }

    /// What the server says to statements that were sent as one packet.
    pub(super) fn answers(&mut self, deadline: Deadline) -> Result<Answers, Error> {
        let (mut all, mut length) = (Vec::new(), 0);
        let mut next = |wire: &mut Wire| {
            let packet = wire.packet(deadline)?;
            // An empty one takes room, too.
            length += packet.len() + PACKET_ROOM;
            if length > MOST { Err(unexpected("more than it was asked")) } else { Ok(packet) }
        };
        loop {
            let first = next(self)?;
            let mut fields = Fields(&first);
            let mut said = Said::default();
            let status = match fields.byte()? {
                0xff => return Ok((all, Some(fields.refusal()?))),
                0 => {
                    (said.changed, said.id) = (fields.number()?, fields.number()?);
                    fields.short()?
                }
                0xfb => return Err(unexpected("that it wants a file")),
                _ => {
                    let columns = Fields(&first).number()?;
                    // What the columns are is known.
                    for _ in 0..=columns {
                        next(self)?;
                    }
                    loop {
                        let packet = next(self)?;
                        let mut fields = Fields(&packet);
                        match packet.first() {
                            Some(0xff) => {
                                fields.byte()?;
                                return Ok((all, Some(fields.refusal()?)));
                            }
                            Some(0xfe) if packet.len() < 9 => {
                                fields.take(3)?;
                                break fields.short()?;
                            }
                            _ => said.rows.push(fields.row(columns)?),
                        }
                    }
                }
            };
            all.push(said);
            const MORE: u16 = 8;
            if status & MORE == 0 {
                let is_all = self.read == self.inbox.len();
                let surplus = || unexpected("more than it was asked");
                return if is_all { Ok((all, None)) } else { Err(surplus()) };
            }
        }
    }
}

impl Row {
    pub(super) fn column(&self, index: usize) -> Option<&[u8]> {
        self.0.get(index)?.as_deref()
    }

    pub(super) fn number(&self, index: usize) -> Option<i64> {
        std::str::from_utf8(self.column(index)?).ok()?.parse().ok()
    }
}

/// What is in a packet, from its beginning to its end.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(cut)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn byte(&mut self) -> Result<u8, Error> {
        Ok(self.take(1)?[0])
    }

    pub(super) fn short(&mut self) -> Result<u16, Error> {
        Ok(u16::from_le_bytes(self.take(2)?.try_into().map_err(|_| cut())?))
    }

    /// Up to a zero byte, or the end.
    pub(super) fn text(&mut self) -> &'a [u8] {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        let text = &self.0[..end];
        self.0 = self.0.get(end + 1..).unwrap_or_default();
        text
    }

    /// A number that says itself how long it is.
    fn number(&mut self) -> Result<u64, Error> {
        let length = match self.byte()? {
            0xfc => 2,
            0xfd => 3,
            0xfe => 8,
            0xfb | 0xff => return Err(cut()),
            small => return Ok(small.into()),
        };
        Ok(self.take(length)?.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }

    fn row(&mut self, columns: u64) -> Result<Row, Error> {
        let mut values = Vec::new();
        for _ in 0..columns {
            values.push(if self.0.first() == Some(&0xfb) {
                self.byte()?;
                None
            } else {
                let length = usize::try_from(self.number()?).map_err(|_| cut())?;
                Some(self.take(length)?.to_vec())
            });
        }
        Ok(Row(values))
    }

    /// The rest of a packet that says no.
    pub(super) fn refusal(&mut self) -> Result<Refusal, Error> {
        let code = self.short()?;
        // Some errors before the log-in have no state.
        let message = self.0.strip_prefix(b"#").and_then(|rest| rest.get(5..)).unwrap_or(self.0);
        Ok(Refusal { code, error: fault::server(code, &String::from_utf8_lossy(message)) })
    }
}

fn cut() -> Error {
    unexpected("something else than is known")
}

pub(super) fn unexpected(what: &str) -> Error {
    Error::new(ErrorKind::Protocol, format!("the server said {what}"))
}
