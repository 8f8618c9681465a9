//! What is said to etcd and what it answers, of its rpc.proto as much as a lock needs.

use super::proto::{Field, Message, read};

pub(super) const TXN: &str = "/etcdserverpb.KV/Txn";
pub(super) const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
pub(super) const REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
pub(super) const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
pub(super) const TIME_TO_LIVE: &str = "/etcdserverpb.Lease/LeaseTimeToLive";
pub(super) const WATCH: &str = "/etcdserverpb.Watch/Watch";
pub(super) const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";

/// An etcd does so many things in one transaction at most, if it is not told otherwise.
pub(super) const MOST_OPS: usize = 128;
/// And takes 1.5 MiB in one request. Beside so many bytes of keys there is room for the rest.
const MOST_BYTES: usize = 1 << 20;

/// So many things are asked for at a time that have keys like these.
pub(super) fn most_of<'a>(keys: impl Iterator<Item = &'a [u8]>) -> usize {
    let longest = keys.map(<[u8]>::len).max().unwrap_or(0);
    (MOST_BYTES / longest.max(1)).clamp(1, MOST_OPS)
}

/// What has to be so, what is done then, and what else: in one step.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Txn(pub(super) Message);

impl Txn {
    /// The key was last written with this revision; with 0, there is none.
    pub(super) fn if_unchanged(self, key: &[u8], modified: u64) -> Txn {
        let target = if modified == 0 { 1 } else { 2 };
        let compare = Message::default().number(2, target).bytes(3, key);
        let compare = compare.number(6, signed(modified));
        Txn(self.0.message(1, &compare))
    }

    /// No key that begins so was created before this revision; with 0, there is none.
    pub(super) fn if_none_before(self, prefix: &[u8], created: u64) -> Txn {
        let (result, than) = if created == 0 { (0, 0) } else { (1, signed(created) - 1) };
        let compare = Message::default().number(1, result).number(2, 1).bytes(3, prefix);
        let compare = compare.number(5, than).bytes(64, &behind(prefix));
        Txn(self.0.message(1, &compare))
    }

    pub(super) fn then(self, op: Op) -> Txn {
        Txn(self.0.message(2, &op.0))
    }

    pub(super) fn otherwise(self, op: Op) -> Txn {
        Txn(self.0.message(3, &op.0))
    }
}

/// One thing that a transaction does.
#[derive(Clone)]
pub(super) struct Op(Message);

impl Op {
    pub(super) fn put(key: &[u8], value: &[u8], lease: i64) -> Op {
        let put = Message::default().bytes(1, key).bytes(2, value).number(3, lease);
        Op(Message::default().message(2, &put))
    }

    /// Under the lease that the key has.
    pub(super) fn put_in_place(key: &[u8], value: &[u8]) -> Op {
        let put = Message::default().bytes(1, key).bytes(2, value).number(6, 1);
        Op(Message::default().message(2, &put))
    }

    pub(super) fn delete(key: &[u8]) -> Op {
        Op(Message::default().message(3, &Message::default().bytes(1, key)))
    }

    pub(super) fn get(key: &[u8]) -> Op {
        Op(Message::default().message(1, &Message::default().bytes(1, key)))
    }

    /// The first key that begins so, by when they were created.
    pub(super) fn first(prefix: &[u8]) -> Op {
        Op::first_of(prefix, 1)
    }

    /// The first of those between two keys, by their names.
    pub(super) fn between(first: &[u8], end: &[u8], most: usize) -> Op {
        let range = Message::default().bytes(1, first).bytes(2, end).number(3, most as i64);
        Op(Message::default().message(1, &range))
    }

    /// The first of those that begin so, and how many there are.
    pub(super) fn first_of(prefix: &[u8], most: usize) -> Op {
        Op::range(prefix, most as i64, 1, |range| range)
    }

    /// The last two of those that were created up to a revision, or of all with 0; the last one first.
    pub(super) fn last_two(prefix: &[u8], created: u64) -> Op {
        Op::range(prefix, 2, 2, |range| range.number(13, signed(created)))
    }

    /// The one that was created with this revision.
    pub(super) fn created(prefix: &[u8], created: u64) -> Op {
        let created = signed(created);
        Op::range(prefix, 1, 1, |range| range.number(12, created).number(13, created))
    }

    fn range(prefix: &[u8], most: i64, order: i64, add: impl Fn(Message) -> Message) -> Op {
        let range = Message::default().bytes(1, prefix).bytes(2, &behind(prefix)).number(3, most);
        // By the revisions that created them.
        Op(Message::default().message(1, &add(range.number(5, order).number(6, 2))))
    }

    pub(super) fn txn(txn: &Txn) -> Op {
        Op(Message::default().message(4, &txn.0))
    }
}

/// The first key behind all that begin with this.
pub(super) fn behind(begin: &[u8]) -> Vec<u8> {
    let mut end = begin.to_vec();
    while end.pop_if(|byte| *byte == u8::MAX).is_some() {}
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// What a transaction came to.
#[derive(Default, Debug)]
pub(super) struct Done {
    /// The revision of the store after it, and the term of its leader.
    pub(super) revision: u64,
    pub(super) term: u64,
    /// Whether all that had to be so was so.
    pub(super) is_so: bool,
    pub(super) parts: Vec<Part>,
}

/// What one thing of it came to.
#[derive(Default, Debug)]
pub(super) struct Part {
    pub(super) keys: Vec<Key>,
    /// How many there are, whatever was asked for.
    pub(super) count: u64,
    pub(super) inner: Option<Box<Done>>,
}

#[derive(Clone, Default, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) key: Vec<u8>,
    pub(super) created: u64,
    pub(super) modified: u64,
    pub(super) value: Vec<u8>,
    pub(super) lease: i64,
}

/// So deep are the transactions in one that we send. An answer without such a bound could use up the stack.
const DEPTH: u32 = 4;

impl Done {
    pub(super) fn read(message: &[u8]) -> Option<Done> {
        Done::read_in(message, DEPTH)
    }

    fn read_in(message: &[u8], depth: u32) -> Option<Done> {
        let mut done = Done::default();
        let mut is_whole = true;
        read(message, |number, field| match number {
            1 => (done.revision, done.term) = header(field),
            2 => done.is_so = field.number() != 0,
            3 => match Part::read(field.bytes(), depth) {
                Some(part) => done.parts.push(part),
                None => is_whole = false,
            },
            _ => {}
        })?;
        is_whole.then_some(done)
    }

    pub(super) fn part(&mut self, index: usize) -> Part {
        self.parts.get_mut(index).map(std::mem::take).unwrap_or_default()
    }

    /// What the transaction inside it came to.
    pub(super) fn inner(&mut self, index: usize) -> Done {
        self.part(index).inner.map_or_else(Done::default, |inner| *inner)
    }
}

impl Part {
    fn read(message: &[u8], depth: u32) -> Option<Part> {
        let mut part = Part::default();
        let mut is_whole = true;
        read(message, |kind, field| match kind {
            1 => {
                let range = read(field.bytes(), |number, field| match number {
                    2 => part.keys.push(Key::read(field)),
                    4 => part.count = field.count(),
                    _ => {}
                });
                is_whole &= range.is_some();
            }
            4 => {
                part.inner = depth
                    .checked_sub(1)
                    .and_then(|depth| Done::read_in(field.bytes(), depth))
                    .map(Box::new);
                is_whole &= part.inner.is_some();
            }
            _ => {}
        })?;
        is_whole.then_some(part)
    }

    pub(super) fn first(&mut self) -> Option<Key> {
        if self.keys.is_empty() { None } else { Some(self.keys.swap_remove(0)) }
    }
}

impl Key {
    fn read(field: Field<'_>) -> Key {
        let mut key = Key::default();
        let _ = read(field.bytes(), |number, field| match number {
            1 => key.key = field.bytes().to_vec(),
            2 => key.created = field.count(),
            3 => key.modified = field.count(),
            5 => key.value = field.bytes().to_vec(),
            6 => key.lease = field.number(),
            _ => {}
        });
        key
    }
}

/// The revision and the term of an answer.
fn header(field: Field<'_>) -> (u64, u64) {
    let (mut revision, mut term) = (0, 0);
    let _ = read(field.bytes(), |number, field| match number {
        3 => revision = field.count(),
        4 => term = field.count(),
        _ => {}
    });
    (revision, term)
}

/// What is answered about a lease.
#[derive(Default, Debug)]
pub(super) struct Lives {
    pub(super) term: u64,
    pub(super) id: i64,
    /// For how many seconds from now on; none if there is no such lease.
    pub(super) seconds: i64,
    /// Of how many it is.
    pub(super) whole: i64,
}

impl Lives {
    pub(super) fn read(message: &[u8]) -> Option<Lives> {
        let mut lives = Lives::default();
        read(message, |number, field| match number {
            1 => lives.term = header(field).1,
            2 => lives.id = field.number(),
            3 => lives.seconds = field.number(),
            4 => lives.whole = field.number(),
            _ => {}
        })?;
        Some(lives)
    }
}

/// Asks for a lease of so many seconds.
pub(super) fn grant(id: i64, seconds: i64) -> Message {
    Message::default().number(1, seconds).number(2, id)
}

/// Asks for its life to begin anew, or how long it goes on.
pub(super) fn of_lease(id: i64) -> Message {
    Message::default().number(1, id)
}

/// Wants to hear of the end of a key from a revision on, under a number of our own.
pub(super) fn watch(number: i64, key: &[u8], revision: u64) -> Message {
    // Not of what is put there.
    let create = Message::default().bytes(1, key).number(3, signed(revision)).bytes(5, &[0]);
    Message::default().message(1, &create.number(7, number))
}

pub(super) fn unwatch(number: i64) -> Message {
    Message::default().message(2, &Message::default().number(1, number))
}

/// What is told of a key that is watched.
#[derive(Default, Debug)]
pub(super) struct Told {
    pub(super) watch: i64,
    /// The watch has begun, and what the server had done by then.
    pub(super) begun: Option<u64>,
    /// Nothing more will be, and why.
    pub(super) is_over: bool,
    pub(super) why: String,
    /// The key is gone.
    pub(super) is_gone: bool,
}

impl Told {
    pub(super) fn read(message: &[u8]) -> Option<Told> {
        let (mut told, mut revision) = (Told::default(), 0);
        read(message, |number, field| match number {
            1 => revision = header(field).0,
            2 => told.watch = field.number(),
            3 => told.begun = Some(revision).filter(|_| field.number() != 0),
            4 => told.is_over = field.number() != 0,
            6 => told.why = String::from_utf8_lossy(field.bytes()).into_owned(),
            // An event: 1 is that a key is gone. A later one of the same key is about another place.
            11 => {
                let _ = read(field.bytes(), |number, field| {
                    told.is_gone |= number == 1 && field.number() == 1;
                });
            }
            _ => {}
        })?;
        Some(told)
    }
}

pub(super) fn authenticate(user: &str, password: &str) -> Message {
    Message::default().bytes(1, user.as_bytes()).bytes(2, password.as_bytes())
}

pub(super) fn authenticated(message: &[u8]) -> Option<String> {
    let mut token = None;
    read(message, |number, field| {
        if number == 2 {
            token = String::from_utf8(field.bytes().to_vec()).ok();
        }
    })?;
    token
}
