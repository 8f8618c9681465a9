//! Locks on a majority of servers as people write them by hand, each with a mistake of its own.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::crew::Scheme;
use super::{NAME, NODE_TIMEOUT, ms};
use kit::Dice;
use kit::history::now;

const TTL: Duration = ms(500);
const COUNTER: &str = "counter";
const GIVE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
/// A lock and a number that goes up by one for each grant.
const TAKE_AND_COUNT: &str = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return redis.call('INCR', KEYS[2]) end return 0";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// That servers may forget is not thought of, and nothing else is wrong.
    None,
    /// Who has the lock relies on it until it has released it.
    NoValidity,
    /// A majority of the servers that answer is enough.
    OfAnswers,
    /// What comes late is read as the answer to the next question.
    LateAnswers,
    /// The fence is the largest number that a server gave, each of which counts by itself.
    PlainCounters,
}

pub struct ByHand {
    mistake: Mistake,
    wires: Vec<Wire>,
    dice: Dice,
    token: String,
    valid_until: Duration,
}

impl ByHand {
    pub fn new(mistake: Mistake, ports: &[u16], mut dice: Dice) -> ByHand {
        let wires = ports.iter().map(|port| Wire { port: *port, stream: None }).collect();
        let (token, valid_until) = (String::new(), Duration::ZERO);
        let dice = dice.split();
        ByHand { mistake, wires, dice, token, valid_until }
    }

    fn attempt(&mut self) -> Option<u64> {
        self.token = format!("{:016x}", self.dice.below(u64::MAX));
        let (token, ttl, sent) = (self.token.clone(), TTL.as_millis().to_string(), now());
        let answers = if self.mistake == Mistake::PlainCounters {
            self.ask(&["EVAL", TAKE_AND_COUNT, "2", NAME, COUNTER, &token, &ttl])
        } else {
            self.ask(&["SET", NAME, &token, "NX", "PX", &ttl])
        };
        let grant = |answer: &String| match answer.split_at_checked(1)? {
            ("+", "OK") => Some(1),
            (":", number) => number.parse().ok().filter(|number| *number > 0),
            _ => None,
        };
        let grants: Vec<u64> = answers.iter().flatten().filter_map(grant).collect();
        let voters = match self.mistake {
            Mistake::OfAnswers => answers.iter().flatten().count(),
            _ => self.wires.len(),
        };
        self.valid_until = sent + TTL - TTL / 100 - ms(2);
        let in_time = self.mistake == Mistake::NoValidity || now() < self.valid_until;
        if grants.len() > voters / 2 && in_time {
            return match self.mistake {
                Mistake::PlainCounters => grants.into_iter().max(),
                // These are about two at once.
                _ => Some(sent.as_nanos() as u64),
            };
        }
        self.give();
        None
    }

    fn give(&mut self) {
        let token = std::mem::take(&mut self.token);
        self.valid_until = Duration::ZERO;
        self.ask(&["EVAL", GIVE, "1", NAME, &token]);
    }

    /// All servers at once; who does not answer in time has not answered.
    fn ask(&mut self, words: &[&str]) -> Vec<Option<String>> {
        let length = |word: &&str| format!("${}\r\n{word}\r\n", word.len());
        let words = words.iter().map(length).collect::<Vec<_>>();
        let request = format!("*{}\r\n{}", words.len(), words.concat());
        let sent: Vec<bool> = self.wires.iter_mut().map(|wire| wire.send(&request)).collect();
        let deadline = now() + NODE_TIMEOUT;
        let stays = self.mistake == Mistake::LateAnswers;
        let both = self.wires.iter_mut().zip(sent);
        both.map(|(wire, sent)| sent.then(|| wire.answer(deadline, stays)).flatten()).collect()
    }
}

impl Scheme for ByHand {
    fn acquire(&mut self, wait: Duration) -> Option<u64> {
        let deadline = now() + wait;
        loop {
            let fence = self.attempt();
            if fence.is_some() || now() >= deadline {
                return fence;
            }
            std::thread::sleep(self.dice.ms_below(30));
        }
    }

    fn is_valid(&self) -> bool {
        match self.mistake {
            Mistake::NoValidity => !self.token.is_empty(),
            _ => now() < self.valid_until,
        }
    }

    fn release(&mut self, _dice: &mut Dice) {
        self.give();
    }

    fn ttl(&self) -> Duration {
        TTL
    }

    /// Most mistakes show only then.
    fn held_long_once_in(&self) -> u64 {
        2
    }
}

struct Wire {
    port: u16,
    stream: Option<TcpStream>,
}

impl Wire {
    fn send(&mut self, request: &str) -> bool {
        if self.stream.is_none() {
            self.stream = TcpStream::connect(("127.0.0.1", self.port)).ok();
        }
        let sent =
            self.stream.as_mut().is_some_and(|stream| stream.write_all(request.as_bytes()).is_ok());
        if !sent {
            self.stream = None;
        }
        sent
    }

    /// One line. Without one in time, the connection is given up or, by mistake, stays.
    fn answer(&mut self, deadline: Duration, stays: bool) -> Option<String> {
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            let stream = self.stream.as_mut()?;
            let left = deadline.saturating_sub(now()).max(Duration::from_micros(1));
            stream.set_read_timeout(Some(left)).unwrap();
            let mut byte = [0];
            match stream.read(&mut byte) {
                Ok(1) => line.push(byte[0]),
                Err(error) if error.kind() == ErrorKind::WouldBlock && stays => return None,
                _ => self.stream = None,
            }
        }
        Some(String::from_utf8_lossy(&line).trim_end().to_owned())
    }
}
