//! What is to be seen of a name: look.lua, which every way of writing locks shares.

use std::time::Duration;

use redis::Value;

use super::{Batch, Format, Packer, Script, foreign, script, unreadable};
use crate::error::Error;
use crate::store::{Holder, Look};
use crate::token::{HEX, Token};

static LOOK: Script = script!("look.lua");

impl Format {
    pub(in crate::store::redis) fn pack_look<'a>(&self, name: &'a [u8]) -> Batch<'a> {
        let mut packer = Packer::new(self, 1);
        packer.begin(name, None);
        packer.call(&LOOK, 2, &[]);
        packer.batch.look = Some(name);
        packer.batch
    }
}

/// `own`: which word of the side key is the fence of the lock's holder.
pub(in crate::store::redis) fn read(value: Value, own: usize) -> Result<Look, Error> {
    let values = match value {
        Value::ServerError(error) => return Err(LOOK.explain(&error)),
        Value::Array(values) => values,
        value => return Err(unreadable(format!("{value:?}").as_bytes())),
    };
    let [holder, Value::Int(left), side] = &values[..] else {
        return Err(unreadable(b"to a look"));
    };
    let text = |value: &Value| match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    };
    let side = text(side);
    let words: Vec<&str> = side.as_deref().unwrap_or_default().split(' ').collect();
    let words = if words.len() == 4 { words } else { vec![""; 4] };
    // A 0 stands where none was given out yet.
    let fence = |at: usize| words[at].parse().ok().filter(|fence| *fence != 0);
    let last_fence = fence(1);
    let Some(holder) = text(holder) else {
        return Ok(Look { holder: None, last_fence });
    };
    let Ok(left) = u64::try_from(*left) else {
        return Err(foreign("it has no ttl"));
    };
    // The value of a key that is no lock may be somebody's secret.
    let token = if holder.parse::<Token>().is_ok() { &*holder } else { "" };
    Ok(Look {
        holder: Some(Holder {
            token_prefix: token.chars().take(8).collect(),
            ttl: Duration::from_millis(left),
            fence: fence(own).filter(|_| words[3] == holder),
        }),
        last_fence,
    })
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
