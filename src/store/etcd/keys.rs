//! Where things are kept:
//!
//! - `leasehold/lock/<name>/<client>-<number>`: who holds the name or waits for it. The first one that
//!   was created has the lock. A client uses its keys again and again: an etcd walks by each that ever
//!   was there, until it is compacted.
//! - `leasehold/note/<name>`: who has broken the lock last.
//! - `leasehold/client/<prefix>/<number>`: what a client says of itself.
//!
//! The name begins with the client's prefix. In it, `/` is written as `%2F`, and `%` as `%25`.

use std::time::Duration;

use super::messages::{Key, behind};
use crate::clock::wall_micros;
use crate::config::limits::MAX_FENCE;
use crate::error::{Error, ErrorKind, plain};
use crate::store::millis;
use crate::token::{ClientId, Token};

/// What all keys begin with.
pub(super) const ALL: &[u8] = b"leasehold/";
const LOCKS: &[u8] = b"leasehold/lock/";
const NOTES: &[u8] = b"leasehold/note/";
const CLIENTS: &[u8] = b"leasehold/client/";
/// So many fences belong to one place.
const FENCES: u64 = 1024;

#[derive(Clone)]
pub(super) struct Name {
    /// What the keys of all begin with that hold it or wait for it.
    pub(super) all: Vec<u8>,
}

impl Name {
    pub(super) fn new(prefix: &[u8], name: &[u8]) -> Name {
        let mut all = LOCKS.to_vec();
        escape(&mut all, prefix);
        escape(&mut all, name);
        all.push(b'/');
        Name { all }
    }

    /// Whose key this is; of what is no key of a name, itself.
    pub(super) fn of_key(key: &[u8]) -> Name {
        let end = key.iter().skip(LOCKS.len()).position(|byte| *byte == b'/');
        Name { all: key[..end.map_or(key.len(), |end| LOCKS.len() + end + 1)].to_vec() }
    }

    /// One of the keys of this token's client.
    pub(super) fn key(&self, token: Token, number: usize) -> Vec<u8> {
        [&self.all, format!("{}-{number}", token.client()).as_bytes()].concat()
    }

    pub(super) fn note(&self) -> Vec<u8> {
        [NOTES, self.behind()].concat()
    }

    fn behind(&self) -> &[u8] {
        self.all.strip_prefix(LOCKS).unwrap_or_default()
    }

    /// The name itself, with its prefix.
    pub(super) fn plain(&self) -> Vec<u8> {
        let name = self.behind().strip_suffix(b"/").unwrap_or_default();
        percent_encoding::percent_decode(name).collect()
    }

    /// Between which keys those stand of all names that begin so.
    pub(super) fn range(begin: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let mut first = LOCKS.to_vec();
        escape(&mut first, begin);
        let end = behind(&first);
        (first, end)
    }
}

/// What the keys of locks, of notes and of clients begin with, behind a client's prefix.
pub(super) fn begins(prefix: &[u8]) -> Vec<Vec<u8>> {
    let begin = |kind: &[u8]| {
        let mut begin = kind.to_vec();
        escape(&mut begin, prefix);
        begin
    };
    [LOCKS, NOTES, CLIENTS].map(begin).to_vec()
}

/// The error where a key that is in the way of others is none of ours.
pub(super) fn foreign(key: &[u8]) -> Error {
    let key = plain(key);
    let said = format!(
        "the key {key} holds what no program of Leasehold writes: once nobody relies on that lock, \
         etcdctl del '{key}'"
    );
    Error::mended(ErrorKind::WrongType, said)
}

fn escape(key: &mut Vec<u8>, name: &[u8]) {
    for byte in name {
        match byte {
            b'/' => key.extend_from_slice(b"%2F"),
            b'%' => key.extend_from_slice(b"%25"),
            other => key.push(*other),
        }
    }
}

pub(super) fn client(prefix: &[u8], client: ClientId) -> Vec<u8> {
    let mut key = CLIENTS.to_vec();
    escape(&mut key, prefix);
    key.extend_from_slice(format!("/{client}").as_bytes());
    key
}

/// A key that a request may ask for to learn whether it may.
pub(super) fn any(prefix: &[u8]) -> Vec<u8> {
    Name::new(prefix, b"").all
}

/// The first fence of a place; `None` where revisions have become too large.
pub(super) fn first_fence(created: u64) -> Option<u64> {
    let first = created.checked_mul(FENCES)?;
    (first + FENCES - 1 <= MAX_FENCE && created > 0).then_some(first)
}

/// The revision that created the place to which a fence belongs.
pub(super) fn created(fence: u64) -> u64 {
    fence / FENCES
}

/// In what a waiter's key says: for how many milliseconds it is handed the lock. Gone once it has claimed it.
const WAITS: char = '~';
/// In what a key says whose token was asked whether it lives: the revision that had written it.
const ASKED: char = '?';

/// What a key holds: a token, its ttl, when it was written by the clock of its client's machine, how
/// many fences its grant has, and the first of them once the key was written again. Marks stand behind.
pub(super) fn value(token: Token, ttl: Duration, block: u32, first: Option<u64>) -> Vec<u8> {
    let first = first.map_or(String::new(), |first| format!(" {first}"));
    format!("{token} {} {} {block}{first}", millis(ttl), wall_micros() / 1000).into_bytes()
}

/// The same without marks.
pub(super) fn unmarked(value: &[u8]) -> Vec<u8> {
    let is_mark = |two: &[u8]| two[0] == b' ' && [WAITS as u8, ASKED as u8].contains(&two[1]);
    let end = value.windows(2).position(is_mark).unwrap_or(value.len());
    value[..end].to_vec()
}

/// The same of a key that waits.
pub(super) fn waiting(value: &[u8], span: Duration) -> Vec<u8> {
    [value, format!(" {WAITS}{}", millis(span)).as_bytes()].concat()
}

/// The same of a key, as it was written last, whose token is asked whether it lives.
pub(super) fn asked(key: &Key) -> Vec<u8> {
    [&*key.value, format!(" {ASKED}{}", key.modified).as_bytes()].concat()
}

/// What a key says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Said {
    pub(super) token: Token,
    pub(super) ttl: Duration,
    pub(super) first: u64,
    pub(super) block: u32,
    since: u64,
    /// For so long it is handed the lock; `None` once it has claimed it.
    pub(super) waits: Option<Duration>,
    /// Since this revision its client has not written it, and it was asked to.
    pub(super) asked: Option<u64>,
}

impl Said {
    /// How long ago it was said, as far as two machines agree on the time.
    pub(super) fn age(&self) -> Duration {
        Duration::from_millis((wall_micros() / 1000).saturating_sub(self.since))
    }
}

pub(super) fn is_ours(key: &Key) -> bool {
    said(&key.value, key.created).is_some()
}

pub(super) fn is_of(key: &Key, token: Token) -> bool {
    said(&key.value, key.created).is_some_and(|said| said.token == token)
}

/// Reads it; `None` if it is nothing of ours.
pub(super) fn said(value: &[u8], created: u64) -> Option<Said> {
    let mut words = std::str::from_utf8(value).ok()?.split(' ');
    let (token, ttl) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let (since, block) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let (mut first, mut waits, mut asked) = (None, None, None);
    for word in words {
        match (word.strip_prefix(WAITS), word.strip_prefix(ASKED)) {
            (Some(span), _) => waits = span.parse().ok().map(Duration::from_millis),
            (_, Some(written)) => asked = written.parse().ok(),
            _ => first = first.or(word.parse().ok()),
        }
    }
    let first: u64 = first.or(first_fence(created))?;
    // Others can write here, too.
    let last = first.checked_add(u64::from(block))?.checked_sub(1)?;
    if block == 0 || last > MAX_FENCE {
        return None;
    }
    Some(Said { token, ttl: Duration::from_millis(ttl), first, block, since, waits, asked })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_that_are_none_are_nobodys() {
        let token = Token::random().unwrap();
        let read = |block, first| said(&value(token, Duration::ZERO, block, Some(first)), 1);
        assert!(read(1, 5).is_some() && read(1, MAX_FENCE).is_some());
        assert!(
            [(0, 5), (0, 0), (2, MAX_FENCE), (2, u64::MAX)].map(|it| read(it.0, it.1))
                == [const { None }; 4]
        );
    }

    #[test]
    fn marks_change_nothing_else_that_a_key_says() {
        let (token, ttl, span) =
            (Token::random().unwrap(), Duration::from_secs(3), Duration::from_secs(1));
        for first in [None, Some(7000)] {
            let value = value(token, ttl, 64, first);
            let plain = said(&value, 7).unwrap();
            assert_eq!((plain.waits, plain.asked), (None, None));
            let waits = waiting(&value, span);
            let key = Key { value: waits.clone(), modified: 9, ..Key::default() };
            let both = asked(&key);
            assert_eq!(said(&waits, 7), Some(Said { waits: Some(span), ..plain }));
            assert_eq!(said(&both, 7), Some(Said { waits: Some(span), asked: Some(9), ..plain }));
            assert_eq!(
                [&value, &waits, &both].map(|it| unmarked(it)),
                [(); 3].map(|()| value.clone())
            );
        }
    }

    #[test]
    fn no_name_has_keys_among_those_of_another() {
        let names: [&[u8]; 6] = [b"a", b"a/", b"a/1", b"%2F", b"a\0", b"a%"];
        for one in names {
            for other in names.into_iter().filter(|other| *other != one) {
                let (one, other) = (Name::new(b"", one), Name::new(b"", other));
                assert!(!other.all.starts_with(&one.all));
            }
            assert_eq!(Name::new(b"p%", one).plain(), [b"p%", one].concat());
        }
        let (token, name) = (Token::random().unwrap(), Name::new(b"p:", b"a/b"));
        let key = name.key(token, usize::MAX);
        assert_eq!(Name::of_key(&key).all, b"leasehold/lock/p:a%2Fb/");
    }

    #[test]
    fn c6_fences_of_a_later_place_are_larger() {
        let first = first_fence(7).unwrap();
        assert!(first_fence(8).unwrap() > first + FENCES - 1);
        assert_eq!((created(first), created(first + FENCES - 1)), (7, 7));
        assert_eq!(
            (first_fence(0), first_fence(u64::MAX), first_fence(1 << 43)),
            (None, None, None)
        );
        let token = Token::random().unwrap();
        let ttl = Duration::from_secs(3);
        let read = |value: &[u8]| {
            said(value, 7).map(|said| (said.token, said.ttl, said.first, said.block))
        };
        assert_eq!(read(&value(token, ttl, 1, None)), Some((token, ttl, first, 1)));
        let first = first + 64;
        assert_eq!(read(&value(token, ttl, 64, Some(first))), Some((token, ttl, first, 64)));
        assert_eq!(read(b"somebody's"), None);
    }
}
