//! What is to be seen of a name: look.lua, which every way of writing locks shares.

use std::time::Duration;

use redis::Value;

use super::{Batch, Format, Packer, Script, foreign, script, unreadable};
use crate::error::Error;
use crate::store::{Holder, Look};

static LOOK: Script = script!("look.lua");

/// Which of a side key's numbers is the fence of the lock's holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fence {
    /// The second number: the first, the last fence reserved, may be one that nobody uses yet.
    Second,
    /// The first one.
    Last,
}

pub(super) fn pack(format: &Format, name: &[u8]) -> Batch {
    let mut packer = Packer::new(format, 1);
    packer.name(name);
    packer.call(&LOOK, 2, &[]);
    packer.batch
}

pub(super) fn read(value: Value, which: Fence) -> Result<Look, Error> {
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
    let (last, first, owner) = match words[..] {
        [_, last, first, owner] => (last, first, Some(owner)),
        _ => ("", "", None),
    };
    // A 0 stands where none was given out yet.
    let fence = |digits: &str| digits.parse().ok().filter(|fence| *fence != 0);
    let last_fence = fence(last);
    let own = if which == Fence::Last { last } else { first };
    let Some(holder) = text(holder) else {
        return Ok(Look { holder: None, last_fence });
    };
    let Ok(left) = u64::try_from(*left) else {
        return Err(foreign("it has no ttl"));
    };
    Ok(Look {
        holder: Some(Holder {
            token_prefix: holder.chars().take(8).collect(),
            ttl: Duration::from_millis(left),
            fence: fence(own).filter(|_| owner == Some(&holder)),
        }),
        last_fence,
    })
}
