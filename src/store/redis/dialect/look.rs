//! What is to be seen of a name: look.lua for those who wait, and inspect.lua for people, which every
//! way of writing locks shares; and what clients say of themselves.

use std::time::Duration;

use redis::Value;

use super::keys::client_key;
use super::{Arg, Batch, Format, Packer, Script, TAKEN, foreign, script, unreadable};
use crate::error::Error;
use crate::store::{LockState, MOST_WAITERS, Record, Seen, Waiter, millis};
use crate::token::{ClientId, HEX, Token};

static LOOK: Script = script!("look.lua");
static INSPECT: Script = script!("inspect.lua");

impl Format {
    pub(in crate::store::redis) fn pack_look<'a>(&self, name: &'a [u8]) -> Batch<'a> {
        let mut packer = Packer::new(self, 1);
        packer.begin(name, None);
        packer.call(&LOOK, 2, &[]);
        packer.batch.look = Some(name);
        packer.batch
    }

    pub(in crate::store::redis) fn pack_inspect<'a>(&self, name: &'a [u8]) -> Batch<'a> {
        let mut packer = Packer::new(self, 1);
        packer.begin(name, None);
        packer.call(&INSPECT, 3, &[Arg::Number(MOST_WAITERS as u64)]);
        packer.batch.look = Some(name);
        packer.batch
    }
}

/// Plain commands: nothing is decided by what they find.
pub(in crate::store::redis) fn pack_register(record: Record<'_>) -> Batch<'static> {
    let ttl = millis(record.ttl).to_string();
    Batch::default().command(&["SET", &client_key(record.client), record.text, "PX", &ttl])
}

pub(in crate::store::redis) fn pack_unregister(client: ClientId) -> Batch<'static> {
    Batch::default().command(&["DEL", &client_key(client)])
}

pub(in crate::store::redis) fn pack_records(clients: &[ClientId]) -> Batch<'static> {
    let get = |batch: Batch<'static>, id: &ClientId| batch.command(&["GET", &client_key(*id)]);
    clients.iter().fold(Batch::default(), get)
}

/// What a server says of a name, as far as it is there.
struct Words {
    holder: Option<String>,
    left: i64,
    side: Option<String>,
}

impl Words {
    fn read(holder: &Value, left: &Value, side: &Value) -> Option<Words> {
        let Value::Int(left) = *left else { return None };
        Some(Words { holder: text(holder), left, side: text(side) })
    }

    /// `own`: which word of the side key is the fence of the lock's holder. `now`: the server's time.
    fn explain(self, own: usize, now: Option<u64>) -> Result<Seen, Error> {
        let words: Vec<&str> = self.side.as_deref().unwrap_or_default().split(' ').collect();
        let words = if words.len() == 4 { words } else { vec![""; 4] };
        // A 0 stands where none was given out yet.
        let fence = |at: usize| words[at].parse().ok().filter(|fence| *fence != 0);
        let last = fence(1);
        let Some(holder) = self.holder else { return Ok(Seen { last, ..Seen::default() }) };
        let Ok(left) = u64::try_from(self.left) else {
            return Err(foreign("it has no ttl"));
        };
        let is_its = words[3] == holder;
        Ok(Seen {
            is_held: true,
            token: holder.parse().ok(),
            left: Duration::from_millis(left),
            first: fence(own).filter(|_| is_its),
            last,
            age: fence(TAKEN).filter(|_| is_its).and_then(|taken| ago(now, taken)),
            waiting: None,
        })
    }
}

/// In microseconds of one clock, or of two that agree well enough for people.
fn ago(now: Option<u64>, then: u64) -> Option<Duration> {
    Some(Duration::from_micros(now?.checked_sub(then)?))
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    }
}

fn values(value: Value, script: &Script) -> Result<Vec<Value>, Error> {
    match value {
        Value::ServerError(error) => Err(script.explain(&error)),
        Value::Array(values) => Ok(values),
        value => Err(unreadable(format!("{value:?}").as_bytes())),
    }
}

fn none() -> Error {
    unreadable(b"to a look")
}

/// Reads what look.lua answers. `own`: which word of the side key is the fence of the lock's holder.
pub(in crate::store::redis) fn read(value: Value, own: usize) -> Result<Seen, Error> {
    match &values(value, &LOOK)?[..] {
        [holder, left, side] => {
            Words::read(holder, left, side).ok_or_else(none)?.explain(own, None)
        }
        _ => Err(none()),
    }
}

/// The same of inspect.lua.
pub(in crate::store::redis) fn read_inspected(
    value: Value,
    own: usize,
) -> Result<LockState, Error> {
    let values = values(value, &INSPECT)?;
    let [holder, left, side, time, Value::Int(count), Value::Array(first)] = &values[..] else {
        return Err(none());
    };
    let now = text(time).and_then(|time| time.parse::<u64>().ok());
    let seen = Words::read(holder, left, side).ok_or_else(none)?.explain(own, now)?;
    let waiter = |pair: &[Value]| {
        let (member, ticket) = (text(pair.first()?)?, text(pair.get(1)?)?);
        let token: Token = member.split(' ').next()?.parse().ok()?;
        let waited = ticket.parse().ok().and_then(|came| ago(now, came));
        Some(Waiter { token_prefix: token.shown(), waited, client: None })
    };
    let waiters = first.chunks(2).filter_map(waiter).take(MOST_WAITERS).collect();
    let more_waiters = u64::try_from(*count).unwrap_or(0).saturating_sub(first.len() as u64 / 2);
    Ok(LockState { waiters, more_waiters, ..seen.state() })
}

/// Whether the token has the lock and nobody is in the queue, as the side key says: a script that lets
/// somebody stand there writes a 1 in front first.
pub(in crate::store::redis) fn is_unawaited(value: &Value, token: Token) -> bool {
    let Value::Array(values) = value else { return false };
    let [Value::BulkString(holder), _, Value::BulkString(side)] = &values[..] else {
        return false;
    };
    let mut hex = [0; HEX];
    let token = token.hex(&mut hex).as_bytes();
    holder == token && side.starts_with(b"0 ") && side.ends_with(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_holder_whose_queue_is_empty_is_unawaited() {
        let [mine, other] = [(); 2].map(|()| Token::random().unwrap());
        let text = |token: Token| format!("{token}");
        let seen = |holder: Token, side: &str| {
            let bulk = |text: String| Value::BulkString(text.into_bytes());
            let side = bulk(format!("{side} {}", text(mine)));
            is_unawaited(&Value::Array(vec![bulk(text(holder)), Value::Int(900), side]), mine)
        };
        assert!(seen(mine, "0 64 1"));
        assert!(!seen(mine, "1 64 1"), "somebody may wait");
        assert!(!seen(other, "0 64 1"), "it was lost");
        let side = Value::BulkString(format!("0 64 1 {other}").into_bytes());
        let holder = Value::BulkString(text(mine).into_bytes());
        assert!(!is_unawaited(&Value::Array(vec![holder.clone(), Value::Int(900), side]), mine));
        let [gone, nil] = [Value::Nil, Value::Nil];
        assert!(!is_unawaited(&Value::Array(vec![holder, Value::Int(900), gone]), mine));
        assert!(!is_unawaited(&Value::Array(vec![nil]), mine));
    }
}
