//! One connection in PostgreSQL's protocol: messages out, messages in, each by a deadline.

use std::io;
use std::sync::Arc;

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::IsNull;
use postgres_protocol::message::backend::{DataRowBody, ErrorFields, Message};
use postgres_protocol::message::frontend;

use super::fault;
use super::statements::Statement;
use crate::clock::{Deadline, Moment};
use crate::config::Login;
use crate::error::{Error, ErrorKind};
use crate::store::ServerId;
use crate::store::net::pool;
use crate::store::net::seat::Line;
use crate::store::net::stream::{LEAST, Stream};
use crate::store::schema::CHECKED_FOR;
use crate::token::Token;

/// A seat for one, in use.
pub(super) type Lent<'a> = pool::Lent<'a, Wire>;

pub(super) struct Wire {
    pub(super) stream: Stream,
    /// What has come and was not read yet.
    inbox: BytesMut,
    /// What is to go out.
    outbox: BytesMut,
    pub(super) server: ServerId,
    /// Whether a pooler stands between us and the server, which may lend each transaction another
    /// connection: nothing that is said to a session is there the next time.
    pub(super) behind_pooler: bool,
    /// Behind a pooler, what a commit waits for by the URL; empty where that says nothing.
    pub(super) commit: &'static str,
    /// Whether the session waits for the disk unless it is told otherwise.
    pub(super) is_synced: bool,
    /// When it last saw that the tables have the version that is known here.
    checked: Moment,
    /// So many statements stand in front of each transaction that was sent last, and whether one of them
    /// looks at the version again.
    pub(super) preface: usize,
    checks: bool,
    /// Which statements the session knows, unless a pooler may lend another one.
    prepared: [bool; Statement::COUNT],
    /// So many answers come before that to what is sent next.
    unread: u32,
    /// So many were asked for and not read to their end. Before that, nothing else can be asked: what
    /// comes first would be read as the answer to it.
    owed: u32,
    /// The number of the process that serves us, as far as it is the server that says so.
    pub(super) process: i32,
    /// What it logged in with, where that can change.
    pub(super) login: Option<Arc<Login>>,
}

/// No message that is meant for us is longer.
const LONGEST: u32 = 64 * 1024;

const INBOX: usize = 4096;

/// A value of a statement.
#[derive(Clone, Copy)]
pub(super) enum Value<'a> {
    Bytes(&'a [u8]),
    Token(Option<Token>),
    Number(u64),
    Signed(i64),
    Switch(bool),
}

/// The last row of each statement, and why none of them was carried out.
pub(super) type Answers = (Vec<Option<Row>>, Option<Refusal>);

/// A request was refused, and not carried out; or nobody knows whether it counts.
pub(super) struct Refusal {
    pub(super) code: String,
    pub(super) error: Error,
    /// It came with the commit, which may have been made all the same: on this server at least.
    pub(super) is_doubt: bool,
    /// The server ends the connection. It may have done what was asked.
    is_end: bool,
}

impl Line for Wire {
    fn is_stale(&mut self, now: Moment) -> bool {
        self.is_owing() || self.is_retired() || self.stream.is_stale(now, false)
    }

    fn send(&mut self, deadline: Deadline) -> Result<(), (bool, Error)> {
        let bytes = self.outbox.split();
        let sent = self.stream.send(&bytes, deadline);
        sent.map_err(|(count, error)| (count > 0, fault::io("sending", &error)))
    }
}

impl Wire {
    pub(super) fn new(stream: Stream, server: ServerId) -> Wire {
        let [inbox, outbox] = [(); 2].map(|()| BytesMut::with_capacity(INBOX));
        let (behind_pooler, commit, prepared, unread, owed) = Default::default();
        let (is_synced, checked) = (true, Moment::now());
        let (preface, checks, process, login) = Default::default();
        Wire {
            stream,
            inbox,
            outbox,
            server,
            behind_pooler,
            commit,
            is_synced,
            checked,
            preface,
            checks,
            prepared,
            unread,
            owed,
            process,
            login,
        }
    }

    /// Whether an answer was not read to its end: the connection is of no use any more.
    pub(super) fn is_owing(&self) -> bool {
        self.owed > 0
    }

    /// The program says that what it logged in with is not to be relied on any more.
    pub(super) fn is_retired(&self) -> bool {
        self.login.as_ref().is_some_and(|login| login.is_retired())
    }

    pub(super) fn end_point(&self) -> Option<Vec<u8>> {
        self.stream.end_point()
    }

    /// Has a message go out with the next that is sent.
    pub(super) fn write(
        &mut self,
        pack: impl FnOnce(&mut BytesMut) -> io::Result<()>,
    ) -> Result<(), Error> {
        let too_long = |error: io::Error| Error::new(ErrorKind::BadArgument, error.to_string());
        pack(&mut self.outbox).map_err(too_long)
    }

    /// The same of a statement.
    pub(super) fn call(&mut self, statement: Statement, values: &[Value<'_>]) -> Result<(), Error> {
        let (name, sql, types) = statement.parts();
        let name = if self.behind_pooler { "" } else { name };
        let is_known = std::mem::replace(&mut self.prepared[statement as usize], true);
        if self.behind_pooler || !is_known {
            self.write(|out| frontend::parse(name, sql, types.iter().copied(), out))?;
        }
        self.write(|out| {
            let put = |value: &Value<'_>, out: &mut BytesMut| {
                match value {
                    Value::Bytes(bytes) => out.extend_from_slice(bytes),
                    Value::Token(Some(token)) => out.extend_from_slice(&token.bits()),
                    Value::Token(None) => return Ok(IsNull::Yes),
                    // No number of ours has 64 bits.
                    Value::Number(number) => out.extend_from_slice(&number.to_be_bytes()),
                    Value::Signed(number) => out.extend_from_slice(&number.to_be_bytes()),
                    Value::Switch(on) => out.extend_from_slice(&[u8::from(*on)]),
                }
                Ok(IsNull::No)
            };
            frontend::bind("", name, [1], values, put, [1], out)
                .map_err(|_| io::Error::other("the statement is too long"))?;
            frontend::execute("", 0, out)
        })
    }

    /// Begins a transaction that grants: it sets what a session is to know that may have anybody's
    /// settings.
    pub(super) fn settle(&mut self) -> Result<(), Error> {
        (self.preface, self.checks) = (0, false);
        if self.behind_pooler {
            self.call(Statement::Settle, &[Value::Bytes(self.commit.as_bytes())])?;
            self.preface = 1;
        }
        Ok(())
    }

    /// The same, and has the server carry out nothing if the tables have another version by now, where
    /// this connection was not told so lately.
    pub(super) fn settle_checked(&mut self, now: Moment) -> Result<(), Error> {
        self.settle()?;
        self.checks = now.since(self.checked) >= CHECKED_FOR;
        if self.checks {
            self.call(Statement::Version, &[])?;
            self.preface += 1;
        }
        Ok(())
    }

    /// Whether the server has carried out nothing since the tables have no version that is known here, or
    /// since nobody can tell. `told` is what came before the refusal.
    pub(super) fn is_outdated(&self, told: usize, code: &str) -> bool {
        self.checks && told + 1 == self.preface && !fault::is_passing(code)
    }

    /// The tables had the version that is known here when this was sent.
    pub(super) fn was_checked(&mut self, sent: Moment) {
        if self.checks {
            self.checked = sent;
        }
    }

    /// Has something go out first of all that is sent next. The server does it, or the connection is
    /// of no use.
    pub(super) fn begin_with(&mut self, text: &str) -> Result<(), Error> {
        self.unread += 1;
        self.write(|out| frontend::query(text, out))
    }

    /// Ends a transaction: what was written before it is one.
    pub(super) fn sync(&mut self) {
        self.owed += 1;
        frontend::sync(&mut self.outbox);
    }

    /// After an error the connection is of no use any more.
    pub(super) fn receive(&mut self, deadline: Deadline) -> Result<Message, Error> {
        loop {
            if let Some(message) = self.next_message()? {
                return Ok(message);
            }
            self.read(deadline)?;
        }
    }

    /// A message that has come whole.
    pub(super) fn next_message(&mut self) -> Result<Option<Message>, Error> {
        if let Some(length) = self.inbox.get(1..5) {
            let length = length.try_into().map_or(0, u32::from_be_bytes);
            if length > LONGEST {
                return Err(unexpected("something that is not PostgreSQL's"));
            }
        }
        Message::parse(&mut self.inbox).map_err(|error| unexpected(&error.to_string()))
    }

    /// Reads what the server says to so many statements, sent up to one [`sync`](Wire::sync): the last
    /// row of each, or why none of them was carried out.
    ///
    /// What comes behind the last of them is about the commit. A warning there says that the server
    /// stopped waiting for its standbys: what it has committed is gone if one of them takes its place.
    /// Its place tells it from a statement's own warnings, whatever its words and their language are.
    pub(super) fn answers(&mut self, count: usize, deadline: Deadline) -> Result<Answers, Error> {
        let (mut rows, mut row, mut refused) = (Vec::new(), None, None::<Refusal>);
        loop {
            let is_commit = self.unread == 0 && rows.len() == count;
            match self.receive(deadline)? {
                Message::DataRow(body) => row = Some(Row(body)),
                Message::CommandComplete(_) | Message::EmptyQueryResponse if self.unread > 0 => {}
                Message::CommandComplete(_) | Message::EmptyQueryResponse => {
                    rows.push(row.take());
                    if rows.len() > count {
                        return Err(unexpected("more than it was asked"));
                    }
                }
                Message::ErrorResponse(body) => {
                    let refusal = Refusal::read(body.fields());
                    if refusal.is_end {
                        return Err(refusal.error);
                    }
                    let is_doubt = is_commit && !fault::is_passing(&refusal.code);
                    refused = Some(Refusal { is_doubt, ..refusal });
                }
                Message::NoticeResponse(body) if is_commit => {
                    refused = Refusal::warning(body.fields()).or(refused);
                }
                Message::ReadyForQuery(_) if self.unread > 0 => {
                    self.unread -= 1;
                    if let Some(refusal) = refused.take() {
                        return Err(refusal.error);
                    }
                }
                Message::ReadyForQuery(_) if refused.is_none() && rows.len() < count => {
                    return Err(unexpected("less than it was asked"));
                }
                Message::ReadyForQuery(_) => {
                    self.owed = self.owed.saturating_sub(1);
                    return Ok((rows, refused));
                }
                _ => {}
            }
        }
    }

    /// Says so many statements in the simple way. An error may come behind some rows.
    pub(super) fn ask(
        &mut self,
        text: &str,
        count: usize,
        deadline: Deadline,
    ) -> Result<Answers, Error> {
        self.write(|out| frontend::query(text, out))?;
        self.owed += 1;
        self.send(deadline).map_err(|(_, error)| error)?;
        self.answers(count, deadline)
    }

    /// Reads once what comes by then; false if nothing does.
    pub(super) fn wait(&mut self, until: Deadline) -> Result<bool, Error> {
        match self.read(until) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NoAnswer => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads what lies there already.
    pub(super) fn glance(&mut self) -> Result<bool, Error> {
        Ok(!self.stream.is_silent() && self.wait(Deadline::after(LEAST))?)
    }

    fn read(&mut self, until: Deadline) -> Result<(), Error> {
        let mut room = [0; INBOX];
        match self.stream.read(&mut room, until) {
            Ok(0) => Err(fault::io("the answer", &io::ErrorKind::UnexpectedEof.into())),
            Ok(count) => {
                self.inbox.extend_from_slice(&room[..count]);
                Ok(())
            }
            Err(error) => Err(self.stream.explain("the answer", &error)),
        }
    }
}

impl Refusal {
    pub(super) fn read(fields: ErrorFields<'_>) -> Refusal {
        let [code, severity, message] = Refusal::parts(fields);
        let error = fault::server(&code, &message);
        let is_end = severity == "FATAL" || severity == "PANIC";
        Refusal { code, error, is_doubt: false, is_end }
    }

    /// A warning that came with a commit; nothing if it is a lesser word.
    fn warning(fields: ErrorFields<'_>) -> Option<Refusal> {
        let [code, severity, message] = Refusal::parts(fields);
        (severity == "WARNING").then(|| {
            let error = fault::half_committed(&code, &message);
            Refusal { code, error, is_doubt: true, is_end: false }
        })
    }

    /// The code, the severity in English, and the message.
    fn parts(mut fields: ErrorFields<'_>) -> [String; 3] {
        let (mut code, mut severity, mut message) = Default::default();
        while let Ok(Some(field)) = fields.next() {
            let text = String::from_utf8_lossy(field.value_bytes()).into_owned();
            match field.type_() {
                b'C' => code = text,
                b'V' => severity = text,
                b'M' => message = text,
                _ => {}
            }
        }
        [code, severity, message]
    }
}

/// A row of an answer.
pub(super) struct Row(DataRowBody);

impl Row {
    pub(super) fn column(&self, index: usize) -> Option<&[u8]> {
        let range = self.0.ranges().nth(index).ok()???;
        self.0.buffer().get(range)
    }

    /// A whole number, in binary.
    pub(super) fn number(&self, index: usize) -> Option<i64> {
        Some(i64::from_be_bytes(self.column(index)?.try_into().ok()?))
    }

    /// The same where it counts something.
    pub(super) fn count(&self, index: usize) -> Option<u64> {
        Some(u64::try_from(self.number(index)?).unwrap_or(0))
    }
}

pub(super) fn unexpected(what: &str) -> Error {
    Error::new(ErrorKind::Protocol, format!("the server said {what}"))
}
