//! ZooKeeper's words: requests packed, replies unpacked. Numbers are big-endian, texts and bytes have
//! their length in front.

use crate::error::{Error, ErrorKind};

/// One request.
#[derive(Clone, Copy)]
pub(super) enum Ask<'a> {
    /// All of these, or none.
    Multi(&'a [Op<'a>]),
    /// One of these alone.
    One(Op<'a>),
    Exists {
        path: &'a str,
        watch: bool,
    },
    Get(&'a str),
    Children(&'a str),
    /// What was committed before comes before what is read next.
    Sync(&'a str),
    /// No event of this path comes any more.
    Unwatch(&'a str),
}

/// One change.
#[derive(Clone, Copy)]
pub(super) enum Op<'a> {
    Create { path: &'a str, data: &'a [u8], kind: Kind },
    Delete { path: &'a str, version: i32 },
    Set { path: &'a str, data: &'a [u8], version: i32 },
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Lasting = 0,
    /// Ends with its session.
    Ephemeral = 1,
    /// The same, with a number behind its name that grows.
    Numbered = 3,
}

/// Of a change that holds whatever was changed before.
pub(super) const ANY: i32 = -1;

/// What the server answers when it has not done what was asked.
pub(super) mod code {
    pub(in super::super) const NO_NODE: i32 = -101;
    pub(in super::super) const NO_AUTH: i32 = -102;
    pub(in super::super) const BAD_VERSION: i32 = -103;
    pub(in super::super) const EXISTS: i32 = -110;
    pub(in super::super) const NOT_EMPTY: i32 = -111;
    /// No word of the server's: it answers, and at such a length that nobody reads it.
    pub(in super::super) const TOO_LONG: i32 = i32::MIN;
}

/// How a node that was made is told of among several changes.
const MADE: i32 = 1;
pub(super) const EVENT: i32 = -1;
pub(super) const PING: i32 = -2;
const AUTH: i32 = -4;

/// Who may do what with the nodes that are made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Acl {
    Anybody,
    /// Those who have shown the same credentials.
    Ours,
}

/// Packs messages, one behind the other.
pub(super) struct Packer<'a> {
    pub(super) out: &'a mut Vec<u8>,
    pub(super) acl: Acl,
}

impl Packer<'_> {
    /// A message with its length in front.
    fn message(&mut self, pack: impl FnOnce(&mut Self)) {
        let start = self.out.len();
        self.int(0);
        pack(self);
        let length = (self.out.len() - start - 4) as i32;
        self.out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    }

    fn int(&mut self, value: i32) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    fn long(&mut self, value: i64) {
        self.out.extend_from_slice(&value.to_be_bytes());
    }

    fn bytes(&mut self, value: &[u8]) {
        self.int(value.len() as i32);
        self.out.extend_from_slice(value);
    }

    fn text(&mut self, value: &str) {
        self.bytes(value.as_bytes());
    }

    /// The first message of a connection: a new session, or an old one goes on.
    pub(super) fn connect(&mut self, zxid: i64, timeout: i32, session: i64, password: &[u8]) {
        self.message(|it| {
            it.int(0);
            it.long(zxid);
            it.int(timeout);
            it.long(session);
            it.bytes(password);
            // A server that can only be read is of no use.
            it.out.push(0);
        });
    }

    pub(super) fn auth(&mut self, credentials: &[u8]) {
        self.message(|it| {
            [AUTH, 100, 0].into_iter().for_each(|word| it.int(word));
            it.text("digest");
            it.bytes(credentials);
        });
    }

    pub(super) fn ping(&mut self) {
        self.message(|it| [PING, 11].into_iter().for_each(|word| it.int(word)));
    }

    pub(super) fn close_session(&mut self) {
        self.message(|it| [0, -11].into_iter().for_each(|word| it.int(word)));
    }

    pub(super) fn ask(&mut self, xid: i32, ask: &Ask<'_>) {
        self.message(|it| {
            it.int(xid);
            match *ask {
                Ask::One(op) => {
                    it.int(op.number());
                    it.op(op);
                }
                Ask::Multi(ops) => {
                    it.int(14);
                    for op in ops {
                        it.int(op.number());
                        it.out.push(0);
                        it.int(-1);
                        it.op(*op);
                    }
                    it.int(-1);
                    it.out.push(1);
                    it.int(-1);
                }
                Ask::Exists { path, watch } => it.read(3, path, Some(watch)),
                Ask::Get(path) => it.read(4, path, Some(false)),
                Ask::Children(path) => it.read(12, path, Some(false)),
                Ask::Sync(path) => it.read(9, path, None),
                Ask::Unwatch(path) => {
                    it.read(18, path, None);
                    const DATA: i32 = 2;
                    it.int(DATA);
                }
            }
        });
    }

    fn read(&mut self, number: i32, path: &str, watch: Option<bool>) {
        self.int(number);
        self.text(path);
        self.out.extend(watch.map(u8::from));
    }

    fn op(&mut self, op: Op<'_>) {
        match op {
            Op::Create { path, data, kind } => {
                self.text(path);
                self.bytes(data);
                const ALL_RIGHTS: i32 = 31;
                self.int(1);
                self.int(ALL_RIGHTS);
                let (scheme, id) = match self.acl {
                    Acl::Anybody => ("world", "anyone"),
                    Acl::Ours => ("auth", ""),
                };
                self.text(scheme);
                self.text(id);
                self.int(kind as i32);
            }
            Op::Delete { path, version } => {
                self.text(path);
                self.int(version);
            }
            Op::Set { path, data, version } => {
                self.text(path);
                self.bytes(data);
                self.int(version);
            }
        }
    }
}

impl Op<'_> {
    fn number(&self) -> i32 {
        match self {
            Op::Create { .. } => 15,
            Op::Delete { .. } => 2,
            Op::Set { .. } => 5,
        }
    }
}

/// What a server says, to be unpacked from the front. What is cut short is no answer.
pub(super) struct Unpacker<'a>(pub(super) &'a [u8]);

impl<'a> Unpacker<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (front, rest) = self.0.split_first_chunk().ok_or_else(garbled)?;
        self.0 = rest;
        Ok(*front)
    }

    pub(super) fn int(&mut self) -> Result<i32, Error> {
        self.take().map(i32::from_be_bytes)
    }

    pub(super) fn long(&mut self) -> Result<i64, Error> {
        self.take().map(i64::from_be_bytes)
    }

    fn switch(&mut self) -> Result<bool, Error> {
        self.take::<1>().map(|byte| byte != [0])
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Error> {
        // -1 stands for none.
        let length = usize::try_from(self.int()?.max(0)).map_err(|_| garbled())?;
        let (front, rest) = self.0.split_at_checked(length).ok_or_else(garbled)?;
        self.0 = rest;
        Ok(front)
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Error> {
        std::str::from_utf8(self.bytes()?).map_err(|_| garbled())
    }

    pub(super) fn stat(&mut self) -> Result<Stat, Error> {
        let (made, changed, born, at) = (self.long()?, self.long()?, self.long()?, self.long()?);
        let version = self.int()?;
        // Two other versions, the owner, a length and a number of children, and the last child's change.
        self.take::<{ 4 + 4 + 8 + 4 + 4 + 8 }>()?;
        Ok(Stat { made, changed, born, at, version })
    }
}

/// What ZooKeeper knows of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Stat {
    /// The change that made it.
    pub(super) made: i64,
    /// The last one.
    pub(super) changed: i64,
    /// What the leader's clock showed at the one and at the other, in milliseconds.
    pub(super) born: i64,
    pub(super) at: i64,
    pub(super) version: i32,
}

/// The answer to one request.
pub(super) struct Reply {
    /// The last change that this server knew.
    pub(super) zxid: i64,
    /// 0, or why the request was not carried out.
    pub(super) code: i32,
    pub(super) body: Vec<u8>,
}

impl Reply {
    /// A message, of which the number says what it answers.
    pub(super) fn read(message: &[u8]) -> Result<(i32, Reply), Error> {
        let mut from = Unpacker(message);
        let (xid, zxid, code) = (from.int()?, from.long()?, from.int()?);
        Ok((xid, Reply { zxid, code, body: from.0.to_vec() }))
    }

    /// What a node is, after it was asked for or changed.
    pub(super) fn stat(&self) -> Result<Stat, Error> {
        Unpacker(&self.body).stat()
    }

    /// The path of a node that was made, and what it is.
    pub(super) fn made(&self) -> Result<(&str, Stat), Error> {
        let mut from = Unpacker(&self.body);
        Ok((from.text()?, from.stat()?))
    }

    pub(super) fn data(&self) -> Result<(&[u8], Stat), Error> {
        let mut from = Unpacker(&self.body);
        Ok((from.bytes()?, from.stat()?))
    }

    /// The children of a node, and what the node is.
    pub(super) fn children(&self) -> Result<(Vec<&str>, Stat), Error> {
        let mut from = Unpacker(&self.body);
        let count = from.int()?.max(0);
        let names: Result<_, _> = (0..count).map(|_| from.text()).collect();
        Ok((names?, from.stat()?))
    }

    /// Of several changes at once: the last node that was set, or why nothing was done. Of nodes that
    /// were made it tells no more than their paths.
    pub(super) fn changes(&self) -> Result<Result<Stat, i32>, Error> {
        let (mut from, mut last, mut refused) = (Unpacker(&self.body), Stat::default(), self.code);
        while !from.0.is_empty() {
            let (number, is_end, _) = (from.int()?, from.switch()?, from.int()?);
            if is_end {
                break;
            }
            match number {
                MADE => drop(from.text()?),
                5 => last = from.stat()?,
                // Of those that were not tried because another one was refused, -2 or 0.
                -1 => match from.int()? {
                    0 | -2 => {}
                    code => refused = code,
                },
                _ => {}
            }
        }
        Ok(if refused == 0 { Ok(last) } else { Err(refused) })
    }
}

pub(super) fn garbled() -> Error {
    Error::new(ErrorKind::Protocol, "the server's answer cannot be read: is it a ZooKeeper?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_short_or_made_up_is_no_answer_and_no_panic() {
        let whole = [[0, 0, 0, 2].as_slice(), b"\0\0\0\x01a\0\0\0\x01b", &[7; 68]].concat();
        let reply = |body: &[u8]| Reply { zxid: 0, code: 0, body: body.to_vec() };
        assert_eq!(reply(&whole).children().unwrap().0, ["a", "b"]);
        for length in 0..whole.len() {
            assert!(reply(&whole[..length]).children().is_err(), "{length}");
            let _ = reply(&whole[..length]).changes();
        }
        assert!(reply(&[127; 8]).children().is_err());
        assert!(reply(&[0, 0, 0, 1, 0, 0, 0, 1, 0xff]).children().is_err(), "no text");
    }

    #[test]
    fn why_several_changes_were_not_made_is_what_the_one_says_that_was_refused() {
        let mut body = Vec::new();
        for code in [0, -110, -2] {
            body.extend([0xff, 0xff, 0xff, 0xff, 0]);
            body.extend(i32::to_be_bytes(code));
            body.extend(i32::to_be_bytes(code));
        }
        let reply = Reply { zxid: 0, code: 0, body };
        assert_eq!(reply.changes().unwrap(), Err(code::EXISTS));
    }
}
