//! Where a reply ends in the bytes that have come so far, and what it says.
//!
//! The `redis` crate parses what is unusual. Its parser clears 8 KiB before each read, which costs
//! a lock as much as all the rest of the client does; the two everyday replies, a number and a
//! short text, are read here.

use redis::Value;

use super::fault;
use crate::error::{Error, ErrorKind};

/// The longest reply that is read. The map of a Cluster with 1,000 servers and 1,500 ranges of
/// slots has half of that; other replies have much less.
pub(super) const LONGEST: usize = 1024 * 1024;

const SHORTEST: usize = 3;

/// How much has come of a reply that begins where the bytes do. Each byte is looked at once.
pub(super) struct Progress {
    /// Up to here there are whole lines and texts. The text that ends here may not have come yet.
    end: usize,
    /// This many bytes after that are known not to end a line.
    looked: usize,
    /// Replies that are to follow: an array is as many more as it has elements.
    open: usize,
}

impl Default for Progress {
    fn default() -> Progress {
        Progress { end: 0, looked: 0, open: 1 }
    }
}

impl Progress {
    /// `None` while it has not come whole. The bytes are those of the last call, and perhaps more.
    pub(super) fn length(&mut self, bytes: &[u8]) -> Result<Option<usize>, Error> {
        while self.open > 0 {
            let Some(rest) = bytes.get(self.end..) else { return Ok(None) };
            let Some(line) = line(rest, self.looked)? else {
                self.looked = rest.len().saturating_sub(1);
                return Ok(None);
            };
            (self.end, self.looked, self.open) = (self.end + line.len() + 2, 0, self.open - 1);
            match line[0] {
                b'$' if line != b"$-1" => self.end += size(&line[1..])?.saturating_add(2),
                b'*' if line != b"*-1" => self.open += size(&line[1..])?,
                b'>' => self.open += size(&line[1..])?,
                b'%' => self.open += size(&line[1..])?.saturating_mul(2),
                _ => {}
            }
            if self.open.saturating_mul(SHORTEST).saturating_add(self.end) > LONGEST {
                return Err(too_long(bytes));
            }
        }
        Ok((self.end <= bytes.len()).then_some(self.end))
    }
}

/// An everyday reply, a number or a short text, that has come whole and has nothing behind it.
pub(super) fn lone(bytes: &[u8]) -> Option<Value> {
    match bytes {
        [b':', digits @ .., b'\r', b'\n'] => integer(digits).map(Value::Int),
        [b'$', b'1'..=b'9', b'0'..=b'9', b'\r', b'\n', text @ .., b'\r', b'\n'] => {
            let length = usize::from(bytes[1] - b'0') * 10 + usize::from(bytes[2] - b'0');
            (length == text.len()).then(|| Value::BulkString(text.to_vec()))
        }
        _ => None,
    }
}

pub(super) fn value(reply: &[u8]) -> Result<Value, Error> {
    let unusual = || redis::parse_redis_value(reply).map_err(|error| fault::reply(&error));
    lone(reply).map_or_else(unusual, Ok)
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Push<'a> {
    pub(super) kind: &'a [u8],
    /// Like the payload empty where there is none.
    pub(super) channel: &'a [u8],
    pub(super) payload: &'a [u8],
}

/// What a subscriber is told without having asked, or in answer to a PING.
pub(super) fn push(reply: &[u8]) -> Option<Push<'_>> {
    let head = line(reply, 0).ok()??;
    let [b'*' | b'>', ..] = head else { return None };
    let (kind, rest) = text(&reply[head.len() + 2..])?;
    let (channel, rest) = text(rest).unwrap_or_default();
    Some(Push { kind, channel, payload: text(rest).unwrap_or_default().0 })
}

/// Whether it is an array, or in RESP3 what is pushed, whose first element is this word.
pub(super) fn begins(said: &Value, word: &[u8]) -> bool {
    match said {
        Value::Array(said) => {
            matches!(said.first(), Some(Value::BulkString(first)) if first == word)
        }
        Value::Push { kind, .. } => kind.to_string().as_bytes() == word,
        _ => false,
    }
}

fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let head = line(bytes, 0).ok()??;
    let length = size(head.strip_prefix(b"$")?).ok()?;
    let (text, rest) = bytes[head.len() + 2..].split_at_checked(length)?;
    Some((text, rest.get(2..)?))
}

/// The first line without its end, `None` while that has not come. It is not among the first bytes.
fn line(bytes: &[u8], looked: usize) -> Result<Option<&[u8]>, Error> {
    match bytes.first() {
        None => return Ok(None),
        Some(b'+' | b'-' | b':' | b'$' | b'*') => {}
        // In RESP3: what is pushed, a map, and nothing.
        Some(b'>' | b'%' | b'_') => {}
        Some(0x15) => {
            // An alert: what a server sends that wants TLS and hears something else.
            return Err(Error::new(ErrorKind::Tls, "the server speaks TLS: try rediss://"));
        }
        Some(_) => return Err(unreadable(bytes)),
    }
    let end = bytes[looked..].windows(2).position(|pair| pair == b"\r\n");
    Ok(end.map(|end| &bytes[..looked + end]))
}

fn integer(digits: &[u8]) -> Option<i64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn size(digits: &[u8]) -> Result<usize, Error> {
    let size = integer(digits).and_then(|size| usize::try_from(size).ok());
    size.ok_or_else(|| unreadable(digits))
}

fn unreadable(bytes: &[u8]) -> Error {
    wrong("the reply cannot be read", bytes)
}

pub(super) fn too_long(bytes: &[u8]) -> Error {
    wrong("the reply is longer than 1 MB", bytes)
}

pub(super) fn unasked(reply: &[u8]) -> Error {
    wrong("a reply that nobody asked for", reply)
}

fn wrong(what: &str, bytes: &[u8]) -> Error {
    let shown = &bytes[..bytes.len().min(60)];
    Error::new(ErrorKind::Protocol, format!("{what}: {}", shown.escape_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REPLIES: [&[u8]; 11] = [
        b"+OK\r\n",
        b":1\r\n",
        b":-7\r\n",
        b"$-1\r\n",
        b"$0\r\n\r\n",
        b"$20\r\nG 1795182559483864 1\r\n",
        b"-NOSCRIPT No matching script.\r\n",
        b"*3\r\n$2\r\n\r\n\r\n:5\r\n*1\r\n$-1\r\n",
        b"%2\r\n$5\r\nproto\r\n:3\r\n$7\r\nmodules\r\n*0\r\n",
        b"_\r\n",
        b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n7\r\n",
    ];

    fn length(bytes: &[u8]) -> Result<Option<usize>, Error> {
        Progress::default().length(bytes)
    }

    #[test]
    fn each_reply_ends_where_it_ends_however_much_has_come() {
        for reply in REPLIES {
            let mut progress = Progress::default();
            for cut in 0..reply.len() {
                assert_eq!(length(&reply[..cut]).unwrap(), None, "{}", reply.escape_ascii());
                assert_eq!(progress.length(&reply[..cut]).unwrap(), None);
            }
            assert_eq!(progress.length(reply).unwrap(), Some(reply.len()));
            let more = [reply, b":9\r\n"].concat();
            assert_eq!(length(&more).unwrap(), Some(reply.len()), "{}", reply.escape_ascii());
        }
    }

    #[test]
    fn each_reply_says_what_the_crate_reads_in_it() {
        for reply in REPLIES {
            assert_eq!(value(reply).unwrap(), redis::parse_redis_value(reply).unwrap());
            let is_lone = matches!(reply, [b':', ..] | [b'$', _, b'0', ..]);
            assert_eq!(lone(reply), is_lone.then(|| value(reply).unwrap()));
            for more in ["x", "\r\n", ":1\r\n", "$20\r\nG 1795182559483864 1\r\n"] {
                assert_eq!(lone(&[reply, more.as_bytes()].concat()), None);
            }
            assert_eq!(lone(&reply[..reply.len() - 1]), None);
        }
    }

    #[test]
    fn what_a_subscriber_is_told_is_read_and_nothing_else_is_taken_for_it() {
        let message = b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$4\r\n\r\n\0x\r\n";
        assert_eq!(
            push(message),
            Some(Push { kind: b"message", channel: b"c", payload: b"\r\n\0x" })
        );
        let pushed = b">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$4\r\n\r\n\0x\r\n";
        assert_eq!(push(pushed), push(message));
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
        let all: [&[u8]; 4] = [b"HTTP/1.1 400", b"$x\r\n", b"*-2\r\n", b"\0"];
        for bytes in all {
            let error = length(bytes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol, "{}", bytes.escape_ascii());
        }
        let alert = length(b"\x15\x03\x03\0\x02\x02\x0a").unwrap_err();
        assert_eq!(alert.kind(), ErrorKind::Tls);
        assert!(alert.detail().ends_with("try rediss://"), "{alert}");
        let deep = "*1\r\n".repeat(200_000) + ":1\r\n";
        assert_eq!(length(deep.as_bytes()).unwrap(), Some(deep.len()));
        assert_eq!(value(deep.as_bytes()).unwrap_err().kind(), ErrorKind::Protocol);
    }

    #[test]
    fn a_reply_that_must_become_too_long_is_refused_as_soon_as_it_says_so() {
        let text = format!("${}\r\n", LONGEST - 12);
        assert_eq!(length(text.as_bytes()).unwrap(), None);
        let texts = format!("*2\r\n${}\r\n{}", LONGEST / 2, "x".repeat(LONGEST / 2 + 2));
        assert_eq!(length((texts.clone() + ":1\r\n").as_bytes()).unwrap(), Some(texts.len() + 4));
        for bytes in [
            format!("${}\r\n", LONGEST - 10),
            format!("${}\r\n", i64::MAX),
            format!("*{}\r\n", LONGEST / 3),
            format!("*{}\r\n", i64::MAX),
            "*1000\r\n".repeat(400),
            format!("*2\r\n${}\r\n", LONGEST - 15),
            texts + "$600000\r\n",
        ] {
            let error = length(bytes.as_bytes()).unwrap_err();
            assert!(error.detail().starts_with("the reply is longer than 1 MB: "), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_a_panic(bytes in proptest::collection::vec(
            prop_oneof![Just(b'$'), Just(b'*'), Just(b'\r'), Just(b'\n'), b'0'..=b'9', any::<u8>()],
            0..40,
        )) {
            let mut progress = Progress::default();
            let step = |cut: usize| progress.length(&bytes[..cut]).transpose();
            let in_steps = (0..=bytes.len()).find_map(step).transpose();
            prop_assert_eq!(in_steps.ok(), length(&bytes).ok());
            if let Ok(Some(length)) = length(&bytes) {
                let _ = value(&bytes[..length]);
                let _ = push(&bytes[..length]);
            }
        }
    }
}
