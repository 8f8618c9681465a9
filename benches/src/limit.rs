//! The bare limit: the bytes of a cycle, prepared once, over a bare socket to each server that
//! takes part. All are written to, then all replies are read; nobody can take a lock and give it
//! back with these scripts in less.
//!
//! The scripts, keys and arguments are not written down here a second time: they are read from each
//! server's MONITOR while the library takes a lock and gives it back once.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kit::Server;
use leasehold::{Lease, Lock};

use crate::bare::{Bare, pack};
use crate::measure::Outcome;

/// Until all servers know the scripts: the slowest of a quorum are told them a little later.
const ROUNDS: usize = 4;
const CYCLES: usize = 20;
const PAUSE: Duration = Duration::from_millis(100);

/// Takes a lock that nobody else knows of.
pub(crate) fn take(lock: &Lock) -> Outcome<Lease> {
    Ok(lock.try_acquire()?.ok_or("somebody else has the lock")?)
}

pub(crate) struct Limit {
    nodes: Vec<Node>,
    token: Vec<u8>,
    turn: u64,
}

struct Node {
    bare: Bare,
    take: Template,
    give: Template,
    fence_length: usize,
    /// How the server answers a give that found nothing to give.
    nothing: Vec<u8>,
}

impl Limit {
    pub(crate) fn new(lock: &Lock, servers: &[&Server]) -> Outcome<Limit> {
        for _ in 0..ROUNDS {
            (0..CYCLES)
                .try_for_each(|_| Ok::<_, Box<dyn std::error::Error>>(take(lock)?.release()?))?;
            std::thread::sleep(PAUSE);
        }
        let mut watches: Vec<_> = servers.iter().map(|server| server.watch()).collect();
        let lease = take(lock)?;
        let (token, fence) = (lease.token().to_string(), lease.fence().to_string());
        lease.release()?;
        std::thread::sleep(PAUSE);
        let mut limit = Limit { nodes: Vec::new(), token: token.into_bytes(), turn: 0 };
        for (server, watch) in servers.iter().zip(&mut watches) {
            let sent = watch.client_commands();
            let (take, give) = cycle_in(&sent, &limit.token, fence.as_bytes())?;
            let template = |words| Template::new(words, &limit.token, fence.as_bytes());
            limit.nodes.push(Node {
                bare: Bare::connect(server)?,
                take: template(&take),
                give: template(&give),
                fence_length: fence.len(),
                nothing: Vec::new(),
            });
        }
        limit.new_attempt();
        for node in &mut limit.nodes {
            node.nothing = node.bare.exchange(&node.give.bytes)?.to_vec();
            if node.nothing.starts_with(b"-") {
                return Err(unexpected("give", &node.nothing));
            }
        }
        Ok(limit)
    }

    /// A PING to the first server.
    pub(crate) fn ping(&mut self) -> Outcome<()> {
        Ok(self.nodes[0].bare.ping()?)
    }

    /// Takes the lock and gives it back; tells how long each of them took.
    pub(crate) fn cycle(&mut self) -> Outcome<(Duration, Duration)> {
        self.new_attempt();
        let begun = Instant::now();
        for node in &mut self.nodes {
            node.bare.ask(&node.take.bytes)?;
        }
        for node in &mut self.nodes {
            let reply = node.bare.answer()?;
            match fence_in(reply, node.fence_length) {
                Some(fence) => node.give.put_fence(fence),
                // On a quorum: the number of the attempt.
                None if reply == b":1\r\n" => {}
                None => return Err(unexpected("take", reply)),
            }
        }
        let taken = begun.elapsed();
        let begun = Instant::now();
        for node in &mut self.nodes {
            node.bare.ask(&node.give.bytes)?;
        }
        for node in &mut self.nodes {
            let reply = node.bare.answer()?;
            // A give of what was not granted is answered as if nothing had been there to give.
            if reply == node.nothing || reply.starts_with(b"-") {
                return Err(unexpected("give", reply));
            }
        }
        Ok((taken, begun.elapsed()))
    }

    /// A new token, 16 digits of it counted; and for a quorum the number of an attempt, which is
    /// the clock and stands where a take has something as long as a fence.
    fn new_attempt(&mut self) {
        self.turn += 1;
        let digits = format!("{:016x}", self.turn);
        let start = self.token.len() - digits.len();
        self.token[start..].copy_from_slice(digits.as_bytes());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let attempt = now.as_micros().to_string();
        for node in &mut self.nodes {
            node.take.put_token(&self.token);
            node.give.put_token(&self.token);
            if attempt.len() == node.fence_length {
                node.take.put_fence(attempt.as_bytes());
                node.give.put_fence(attempt.as_bytes());
            }
        }
    }
}

/// A packed command, with the places where token and fence stand in it.
struct Template {
    bytes: Vec<u8>,
    tokens: Vec<usize>,
    fences: Vec<usize>,
}

impl Template {
    fn new(words: &[Vec<u8>], token: &[u8], fence: &[u8]) -> Template {
        let bytes = pack(words);
        let places = |needle: &[u8]| {
            let windows = bytes.windows(needle.len()).enumerate();
            windows.filter(|(_, window)| *window == needle).map(|(at, _)| at).collect()
        };
        Template { tokens: places(token), fences: places(fence), bytes }
    }

    fn put_token(&mut self, token: &[u8]) {
        put(&mut self.bytes, &self.tokens, token);
    }

    fn put_fence(&mut self, fence: &[u8]) {
        put(&mut self.bytes, &self.fences, fence);
    }
}

fn put(bytes: &mut [u8], places: &[usize], value: &[u8]) {
    for place in places {
        bytes[*place..*place + value.len()].copy_from_slice(value);
    }
}

/// The fence in a take's reply: its first number that is as long as a fence.
fn fence_in(reply: &[u8], length: usize) -> Option<&[u8]> {
    reply.split(|byte| !byte.is_ascii_digit()).find(|digits| digits.len() == length)
}

type Words = Vec<Vec<u8>>;

/// The take and the give among the commands that a server saw.
fn cycle_in(sent: &[String], token: &[u8], fence: &[u8]) -> Outcome<(Words, Words)> {
    let calls = sent.iter().filter(|line| line.starts_with("EVALSHA ")).map(|line| words(line));
    // Either may stand inside a longer word.
    let has = |words: &Words, what: &[u8]| {
        words.iter().any(|word| word.windows(what.len()).any(|part| part == what))
    };
    let of_token = calls.filter(|words| has(words, token));
    match <[_; 2]>::try_from(of_token.collect::<Vec<_>>()) {
        Ok([take, give]) if has(&give, fence) => Ok((take, give)),
        _ => Err(format!("a cycle was not the two scripts that it should be: {sent:?}").into()),
    }
}

/// The words of a command as MONITOR quotes them: `EVALSHA "ab" "1" "k\"\x00"`.
fn words(line: &str) -> Words {
    let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
    let mut words = vec![name.as_bytes().to_vec()];
    let mut bytes = rest.bytes();
    while bytes.by_ref().any(|byte| byte == b'"') {
        let mut word = Vec::new();
        while let Some(byte) = bytes.next().filter(|byte| *byte != b'"') {
            word.push(if byte == b'\\' { unescaped(&mut bytes) } else { byte });
        }
        words.push(word);
    }
    words
}

fn unescaped(bytes: &mut impl Iterator<Item = u8>) -> u8 {
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

fn unexpected(script: &str, reply: &[u8]) -> Box<dyn std::error::Error> {
    format!("the bare {script} was answered {}", reply.trim_ascii().escape_ascii()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_take_and_a_give_are_found_and_filled_in() {
        let sent = [
            "PING".to_owned(),
            r#"EVALSHA "d" "1" "n \"\x00" "aaaa" "30""#.to_owned(),
            r#"EVALSHA "e" "1" "n" "0 1234 1234 aaaa""#.to_owned(),
        ];
        let (take, give) = cycle_in(&sent, b"aaaa", b"1234").unwrap();
        assert_eq!(take, [&b"EVALSHA"[..], b"d", b"1", b"n \"\0", b"aaaa", b"30"]);
        let mut give = Template::new(&give, b"aaaa", b"1234");
        give.put_token(b"bbbb");
        give.put_fence(b"5678");
        assert_eq!(give.bytes, pack(&["EVALSHA", "e", "1", "n", "0 5678 5678 bbbb"]));
        assert!(cycle_in(&sent[..2], b"aaaa", b"1234").is_err());
        assert_eq!(fence_in(b"$14\r\nG 1234 5678 30\r\n", 4), Some(&b"1234"[..]));
        assert_eq!(fence_in(b"$6\r\nB 30 1\r\n", 4), None);
    }
}
