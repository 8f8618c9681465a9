//! What is to be seen of many names, and which there are: for people who ask what is locked.

use std::time::Duration;

use redis::Value;

use super::keys::{SIDE, lock_beside};
use super::{Arg, Batch, Format, Packer, Script, TAKEN, Words, fault, script, unreadable};
use crate::clock::Moment;
use crate::error::Error;
use crate::store::breaking::{Breach, LONGEST_BY};
use crate::store::glob::Glob;
use crate::store::{Failure, Seen};
use crate::token::{HEX, Token};

pub(in crate::store::redis) static SURVEY: Script = script!("survey.lua");
static NOTE: Script = script!("note.lua");

/// What one server has of a name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(in crate::store) struct Survey {
    /// The holder's token, if it is one, and the ttl left.
    pub(in crate::store) holder: Option<(Option<Token>, Duration)>,
    /// The side key's numbers and token.
    side: Option<([u64; 2], Option<Token>)>,
    pub(in crate::store) waiting: Option<u64>,
    /// The server's clock in microseconds.
    now: u64,
}

impl Survey {
    pub(in crate::store) fn is_known(&self) -> bool {
        self.side.is_some()
    }

    pub(in crate::store) fn last_fence(&self) -> Option<u64> {
        self.side.map(|([last, _], _)| last).filter(|last| *last != 0)
    }

    /// The fence of the grant that a token has; `own` is the word of the side key that has it.
    pub(in crate::store) fn fence_of(&self, token: Token, own: usize) -> Option<u64> {
        let (numbers, owner) = self.side?;
        // A 0 stands where none was given out yet.
        numbers.get(own.checked_sub(1)?).copied().filter(|one| *one != 0 && owner == Some(token))
    }

    /// Whether something else than this library has it, as far as that is certain: a token of ours
    /// may have outlived its side key, and a waiter has written a new one that names nobody.
    #[cfg(feature = "examine")]
    pub(in crate::store::redis) fn is_foreign(&self) -> bool {
        match (self.holder, self.side) {
            (Some((None, left)), _) => !left.is_zero(),
            (Some((Some(token), _)), Some((_, Some(owner)))) => owner != token,
            _ => false,
        }
    }

    pub(in crate::store) fn seen(&self, own: usize) -> Seen {
        let (token, left) = self.holder.unwrap_or_default();
        let fence = |at| token.and_then(|token| self.fence_of(token, at));
        let since = fence(TAKEN).and_then(|taken| self.now.checked_sub(taken));
        Seen {
            is_held: self.holder.is_some(),
            token,
            left,
            first: fence(own),
            last: self.last_fence(),
            age: since.map(Duration::from_micros),
            waiting: self.waiting,
        }
    }
}

impl Format {
    /// Asks which side keys there are, from a cursor on, some `count` of them. The server leaves out only
    /// what the beginning of the pattern rules out: each further star can cost it as many steps again
    /// as a name has bytes.
    pub(in crate::store::redis) fn pack_scan(
        &self,
        glob: &Glob,
        cursor: u64,
        count: usize,
    ) -> Batch<'static> {
        let head = escaped(&[&self.prefix[..], &glob.head()].concat());
        let pattern = [&escaped(SIDE)[..], b"*", &head, b"*"].concat();
        let (cursor, count) = (cursor.to_string(), count.to_string());
        let words =
            [&b"SCAN"[..], cursor.as_bytes(), b"MATCH", &pattern, b"COUNT", count.as_bytes()];
        Batch::default().command(&words)
    }

    /// Reads the next cursor, 0 at the end, and the names that were found, without the prefix and each
    /// once.
    pub(in crate::store::redis) fn read_scan(
        &self,
        value: &Value,
        glob: &Glob,
    ) -> Result<(u64, Vec<Vec<u8>>), Error> {
        let wrong = || unreadable(b"to a SCAN");
        if let Value::ServerError(error) = value {
            return Err(super::fault::server(error));
        }
        let Value::Array(parts) = value else { return Err(wrong()) };
        let [Value::BulkString(cursor), Value::Array(keys)] = &parts[..] else {
            return Err(wrong());
        };
        let cursor = std::str::from_utf8(cursor).ok().and_then(|digits| digits.parse().ok());
        let name = |key: &Value| match key {
            Value::BulkString(key) => Some(lock_beside(key)?.strip_prefix(&*self.prefix)?.to_vec()),
            _ => None,
        };
        let mut names: Vec<_> = keys.iter().filter_map(name).collect();
        names.retain(|name| glob.matches(name));
        names.sort_unstable();
        names.dedup();
        Ok((cursor.ok_or_else(wrong)?, names))
    }

    pub(in crate::store::redis) fn pack_survey<'a>(&self, names: &'a [Vec<u8>]) -> Batch<'a> {
        let mut packer = Packer::new(self, names.len());
        for name in names {
            packer.begin(name, None);
            packer.call(&SURVEY, 3, &[]);
        }
        packer.batch
    }

    pub(in crate::store::redis) fn pack_notes<'a>(&self, names: &[&'a [u8]]) -> Batch<'a> {
        let mut packer = Packer::new(self, names.len());
        for name in names {
            packer.begin(name, None);
            packer.call(&NOTE, 4, &[]);
        }
        packer.batch
    }

    /// Packs the break of a grant: by `script`, which begins with break.lua.
    pub(in crate::store::redis) fn pack_break<'a>(
        &self,
        script: &'static Script,
        name: &'a [u8],
        (token, fence): (Token, u64),
        by: &[u8],
    ) -> Batch<'a> {
        let by = &by[..by.len().min(LONGEST_BY)];
        let mut packer = Packer::new(self, 1);
        packer.begin(name, None);
        let mut hex = [0; HEX];
        let token = Arg::Text(token.hex(&mut hex).as_bytes());
        packer.call(script, 4, &[token, Arg::Number(fence), Arg::Text(by)]);
        packer.batch
    }
}

pub(in crate::store::redis) fn read(value: Value) -> Result<Survey, Error> {
    let values = match value {
        Value::ServerError(error) => return Err(SURVEY.explain(&error)),
        Value::Array(values) => values,
        value => return Err(unreadable(format!("{value:?}").as_bytes())),
    };
    let [holder, Value::Int(left), side, Value::Int(waiting), Value::BulkString(now)] = &values[..]
    else {
        return Err(unreadable(b"to a survey"));
    };
    let left = u64::try_from(*left).ok().map(Duration::from_millis);
    let holder = match (holder, left) {
        (Value::BulkString(text), Some(left)) => Some((token(text), left)),
        // Without a ttl it is nobody's lock.
        (Value::BulkString(_), None) => Some((None, Duration::ZERO)),
        _ => None,
    };
    let side = match side {
        Value::BulkString(text) => Some(read_side(text)),
        _ => None,
    };
    let (waiting, now) = (u64::try_from(*waiting).ok(), Words(Some(now)).number().unwrap_or(0));
    Ok(Survey { holder, side, waiting, now })
}

/// What stands there if it is a side key; nobody's, else.
fn read_side(text: &[u8]) -> ([u64; 2], Option<Token>) {
    let mut words = Words(Some(text));
    let read = |words: &mut Words<'_>| {
        words.number()?;
        Some([words.number()?, words.number()?])
    };
    read(&mut words).map_or_else(Default::default, |numbers| (numbers, token(words.rest())))
}

pub(in crate::store::redis) fn read_note(value: &Value) -> Result<Option<Breach>, Error> {
    let text = match value {
        Value::BulkString(text) => text,
        Value::ServerError(error) => return Err(fault::server(error)),
        _ => return Ok(None),
    };
    let read = |mut words: Words<'_>| {
        let (token, at) = (token(words.word()?)?, words.number()?);
        Some(Breach::new(token, words.rest(), at))
    };
    Ok(read(Words(Some(text))))
}

/// What a break was answered with, which is 0 where it was not done.
pub(in crate::store::redis) fn read_break(
    script: &Script,
    value: Value,
    sent: Moment,
) -> Result<i64, Failure> {
    match value {
        Value::Int(said) => Ok(said),
        Value::ServerError(error) => Err(Failure::not_done(script.explain(&error))),
        value => Err(Failure::unknown(unreadable(format!("{value:?}").as_bytes()), sent)),
    }
}

fn token(digits: &[u8]) -> Option<Token> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// A text as a pattern of the server's that stands for just this.
fn escaped(text: &[u8]) -> Vec<u8> {
    let is_special = |byte: &u8| b"*?[]\\^-".contains(byte);
    text.iter()
        .flat_map(|byte| is_special(byte).then_some(b'\\').into_iter().chain([*byte]))
        .collect()
}
