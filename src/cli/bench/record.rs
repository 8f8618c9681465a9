//! What the library sends for one cycle, as the server saw it.
//!
//! The limit has to be the limit of the same work: the same scripts, keys and arguments. They are
//! not written down here a second time but read from the server's `MONITOR` while the library
//! takes a lock and gives it back once.

use std::io::{BufRead, BufReader};

use leasehold::Lock;

use super::bare::{Address, Bare, number};
use super::ours;
use crate::exit::Failure;

/// One cycle's two commands, and what differs from cycle to cycle in them.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Recorded {
    pub(super) take: Vec<Vec<u8>>,
    pub(super) give: Vec<Vec<u8>>,
    pub(super) token: Vec<u8>,
    pub(super) fence: Vec<u8>,
}

impl Recorded {
    /// Watches one cycle. The lock is free before and afterwards.
    pub(super) fn of(lock: &Lock, address: &Address, bare: &mut Bare) -> Result<Recorded, Failure> {
        // So that the scripts are there and the connection is open.
        ours::cycle(lock)?;
        let mut monitor = Bare::connect(address)?;
        monitor.call(&[b"MONITOR"])?;
        let lease = ours::take(lock)?;
        let (token, fence) = (lease.token().to_string(), lease.fence().to_string());
        lease.release()?;
        // The server feeds its monitors in the order of execution: behind this comes nothing of
        // the cycle.
        let marker = format!("end:{token}");
        bare.call(&[b"ECHO", marker.as_bytes()])?;
        let mut scripts = Vec::new();
        for line in BufReader::new(monitor.into_socket()).split(b'\n') {
            let parts = parts_of(&line?);
            if parts.get(1).is_some_and(|part| part == marker.as_bytes()) {
                break;
            }
            let script = parts.first().is_some_and(|part| part.eq_ignore_ascii_case(b"EVALSHA"));
            if script && parts.iter().any(|part| part == token.as_bytes()) {
                scripts.push(parts);
            }
        }
        let (token, fence) = (token.into_bytes(), fence.into_bytes());
        match <[_; 2]>::try_from(scripts) {
            Ok([take, give]) if give.contains(&fence) => Ok(Recorded { take, give, token, fence }),
            _ => Err(Failure::unavailable("a cycle was not the two scripts that it should be")),
        }
    }

    /// The keys that the commands name.
    pub(super) fn keys(&self) -> Vec<&[u8]> {
        let mut keys: Vec<_> =
            [&self.take, &self.give].into_iter().flat_map(|command| keys_of(command)).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

/// Behind `EVALSHA` and the digest stands how many of the arguments are keys.
fn keys_of(command: &[Vec<u8>]) -> impl Iterator<Item = &[u8]> {
    let count = command.get(2).and_then(|count| number(count)).unwrap_or(0);
    command.iter().skip(3).take(usize::try_from(count).unwrap_or(0)).map(Vec::as_slice)
}

/// The words of a line such as `+1700000000.123456 [0 127.0.0.1:5000] "SET" "a\"b" "\x00"`.
fn parts_of(line: &[u8]) -> Vec<Vec<u8>> {
    let start = line.windows(3).position(|three| three == b"] \"").map_or(line.len(), |at| at + 2);
    let mut parts = Vec::new();
    let mut bytes = line[start..].iter().copied();
    while bytes.by_ref().any(|byte| byte == b'"') {
        let mut part = Vec::new();
        while let Some(byte) = bytes.next().filter(|byte| *byte != b'"') {
            part.push(if byte == b'\\' { escaped(&mut bytes) } else { byte });
        }
        parts.push(part);
    }
    parts
}

fn escaped(bytes: &mut impl Iterator<Item = u8>) -> u8 {
    match bytes.next().unwrap_or_default() {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'a' => 7,
        b'b' => 8,
        b'x' => {
            let mut digit = || char::from(bytes.next().unwrap_or_default()).to_digit(16);
            let (high, low) = (digit(), digit());
            u8::try_from(high.unwrap_or(0) * 16 + low.unwrap_or(0)).unwrap_or_default()
        }
        plain => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_monitor_reads_back_as_its_parts() {
        let line = br#"+1.5 [0 unix:/a b] "evalsha" "ab" "1" "k]\" \\\x00\xff\n" """#;
        let parts = parts_of(line);
        assert_eq!(parts, [&b"evalsha"[..], b"ab", b"1", b"k]\" \\\x00\xff\n", b""]);
        assert!(parts_of(b"+OK\r").is_empty());
    }

    #[test]
    fn keys_are_those_that_the_commands_count() {
        let command = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let recorded = Recorded {
            take: command(&["EVALSHA", "d", "2", "name", "side", "token"]),
            give: command(&["EVALSHA", "e", "3", "name", "side", "queue", "token", "7"]),
            token: b"token".to_vec(),
            fence: b"7".to_vec(),
        };
        assert_eq!(recorded.keys(), [&b"name"[..], b"queue", b"side"]);
    }
}
