//! Where a reply ends in the bytes that have come so far, and what it says.
//!
//! The `redis` crate parses what is unusual. Its parser clears 8 KiB before each read, which costs
//! a lock as much as all the rest of the client does; the two replies of every day, a number and a
//! short text, are read here.

use redis::Value;

use super::fault;
use crate::error::{Error, ErrorKind};

/// Far more than any reply to a script of ours.
const LONGEST: usize = 1024 * 1024;

/// The length of the first reply, `None` while it has not come whole.
pub(super) fn length(bytes: &[u8]) -> Result<Option<usize>, Error> {
    let mut end = 0;
    // Replies that are still to be skipped: an array is as many more as it has elements.
    let mut open = 1usize;
    while open > 0 {
        let Some(line) = line(&bytes[end..])? else { return Ok(None) };
        end += line.len() + 2;
        open -= 1;
        match line[0] {
            b'$' => match number(&line[1..])? {
                -1 => {}
                length => end += size(length)? + 2,
            },
            b'*' => match number(&line[1..])? {
                -1 => {}
                count => open += size(count)?,
            },
            _ => {}
        }
        if end > bytes.len() {
            return Ok(None);
        }
    }
    Ok(Some(end))
}

/// What a whole reply says.
pub(super) fn value(reply: &[u8]) -> Result<Value, Error> {
    match (line(reply)?, reply) {
        (Some(line), [b':', ..]) => Ok(Value::Int(number(&line[1..])?)),
        (Some([b'$', first, ..]), _) if *first != b'-' => {
            let start = reply.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            Ok(Value::BulkString(reply[start..reply.len() - 2].to_vec()))
        }
        _ => redis::parse_redis_value(reply).map_err(|error| fault::reply(&error)),
    }
}

/// What a server says to a subscriber without being asked, or in answer to a PING.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Push<'a> {
    pub(super) kind: &'a [u8],
    /// The second text; empty where there is none.
    pub(super) channel: &'a [u8],
    /// The third text; empty where there is none.
    pub(super) payload: &'a [u8],
}

/// Reads a whole reply as what a subscriber is told; `None` if it is something else.
pub(super) fn push(reply: &[u8]) -> Option<Push<'_>> {
    let head = line(reply).ok()??;
    let [b'*', ..] = head else { return None };
    let (kind, rest) = text(&reply[head.len() + 2..])?;
    let (channel, rest) = text(rest).unwrap_or_default();
    Some(Push { kind, channel, payload: text(rest).unwrap_or_default().0 })
}

/// A text at the start of the bytes, and what follows it.
fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let head = line(bytes).ok()??;
    let length = size(number(head.strip_prefix(b"$")?).ok()?).ok()?;
    let (text, rest) = bytes[head.len() + 2..].split_at_checked(length)?;
    Some((text, rest.get(2..)?))
}

/// The first line without its end, `None` while that has not come.
fn line(bytes: &[u8]) -> Result<Option<&[u8]>, Error> {
    match bytes.first() {
        None => return Ok(None),
        Some(b'+' | b'-' | b':' | b'$' | b'*') => {}
        Some(_) => return Err(unreadable(bytes)),
    }
    match bytes.windows(2).position(|pair| pair == b"\r\n") {
        None if bytes.len() > LONGEST => Err(unreadable(bytes)),
        end => Ok(end.map(|end| &bytes[..end])),
    }
}

fn number(digits: &[u8]) -> Result<i64, Error> {
    let text = std::str::from_utf8(digits).ok();
    text.and_then(|text| text.parse().ok()).ok_or_else(|| unreadable(digits))
}

fn size(number: i64) -> Result<usize, Error> {
    let size = usize::try_from(number).ok().filter(|size| *size <= LONGEST);
    size.ok_or_else(|| unreadable(number.to_string().as_bytes()))
}

fn unreadable(bytes: &[u8]) -> Error {
    let shown = &bytes[..bytes.len().min(60)];
    let what = format!("the reply cannot be read: {}", shown.escape_ascii());
    Error::new(ErrorKind::Protocol, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REPLIES: [&[u8]; 8] = [
        b"+OK\r\n",
        b":1\r\n",
        b":-7\r\n",
        b"$-1\r\n",
        b"$0\r\n\r\n",
        b"$20\r\nG 1795182559483864 1\r\n",
        b"-NOSCRIPT No matching script.\r\n",
        b"*3\r\n$2\r\n\r\n\r\n:5\r\n*1\r\n$-1\r\n",
    ];

    #[test]
    fn each_reply_ends_where_it_ends_however_much_has_come() {
        for reply in REPLIES {
            for cut in 0..reply.len() {
                assert_eq!(length(&reply[..cut]).unwrap(), None, "{}", reply.escape_ascii());
            }
            let more = [reply, b":9\r\n"].concat();
            assert_eq!(length(&more).unwrap(), Some(reply.len()), "{}", reply.escape_ascii());
        }
    }

    #[test]
    fn each_reply_says_what_the_crate_reads_in_it() {
        for reply in REPLIES {
            assert_eq!(value(reply).unwrap(), redis::parse_redis_value(reply).unwrap());
        }
    }

    #[test]
    fn what_a_subscriber_is_told_is_read_and_nothing_else_is_taken_for_it() {
        let message = b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$4\r\n\r\n\0x\r\n";
        assert_eq!(
            push(message),
            Some(Push { kind: b"message", channel: b"c", payload: b"\r\n\0x" })
        );
        let pong = b"*2\r\n$4\r\npong\r\n$0\r\n\r\n";
        assert_eq!(push(pong), Some(Push { kind: b"pong", channel: b"", payload: b"" }));
        let subscribed = b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n";
        assert_eq!(
            push(subscribed),
            Some(Push { kind: b"subscribe", channel: b"c", payload: b"" })
        );
        for reply in &REPLIES[..7] {
            assert_eq!(push(reply), None, "{}", reply.escape_ascii());
        }
    }

    #[test]
    fn what_is_no_reply_is_refused_and_not_waited_for() {
        let all: [&[u8]; 5] = [b"HTTP/1.1 400", b"$x\r\n", b"*-2\r\n", b"$99999999999\r\n", b"\0"];
        for bytes in all {
            let error = length(bytes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol, "{}", bytes.escape_ascii());
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_a_panic(bytes in proptest::collection::vec(
            prop_oneof![Just(b'$'), Just(b'*'), Just(b'\r'), Just(b'\n'), b'0'..=b'9', any::<u8>()],
            0..40,
        )) {
            if let Ok(Some(length)) = length(&bytes) {
                let _ = value(&bytes[..length]);
                let _ = push(&bytes[..length]);
            }
        }
    }
}
