//! One behaviour, played by the drivers of one language.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::driver::{Driver, Language};
use crate::stores::{LIMIT, Store};
use crate::table::{Behaviour, Step};
use kit::{Mode, Proxy, eventually, unless_starved};

/// Nothing in the table minds a machine that stands still for so long.
const STALL: Duration = Duration::from_millis(150);

pub(crate) fn play(behaviour: &Behaviour, language: &Language, store: &Store) {
    unless_starved(STALL, || {
        let mut play = Play::new(behaviour, language, store);
        for step in behaviour.steps() {
            play.step(&step);
        }
        for (_, driver) in std::mem::take(&mut play.drivers) {
            language.give_back(driver);
        }
    });
}

struct Play<'a> {
    language: &'a Language,
    store: &'a Store,
    /// Before a server that is to stand still: one that does would hold up the others' plays.
    proxy: Option<Proxy>,
    drivers: BTreeMap<String, Driver>,
    remembered: BTreeMap<String, String>,
    /// Makes the names of this play its own.
    prefix: String,
}

impl<'a> Play<'a> {
    fn new(behaviour: &Behaviour, language: &'a Language, store: &'a Store) -> Play<'a> {
        static PLAYS: AtomicU64 = AtomicU64::new(0);
        let prefix = format!("play{}:", PLAYS.fetch_add(1, Ordering::Relaxed));
        let (drivers, remembered) = (BTreeMap::new(), BTreeMap::new());
        let stops = behaviour.steps().any(|step| step.who == "server" && step.command == "stop");
        let proxy = stops.then(|| Proxy::start(store.port().expect("it has one server")));
        Play { language, store, proxy, drivers, remembered, prefix }
    }

    fn step(&mut self, step: &Step<'_>) {
        let line = format!("{}: {}", step.who, step.command);
        match step.who {
            "sleep" => std::thread::sleep(Duration::from_millis(number(step.command))),
            "check" => self.check(step.command),
            "server" => {
                let said = self.at_the_server(step.command);
                if let Some(wanted) = step.answer {
                    assert_eq!(said, wanted, "{line}");
                }
            }
            who => {
                let command = self.filled_in(step.command);
                let language = self.language;
                let driver =
                    self.drivers.entry(who.to_owned()).or_insert_with(|| language.driver());
                let start = Instant::now();
                let said = driver.ask(&command);
                let took = start.elapsed();
                let wanted = step.answer.unwrap_or("ok");
                let (wanted, span) = match wanted.split_once(" in ") {
                    Some((wanted, span)) => (wanted, Some(span)),
                    None => (wanted, None),
                };
                assert!(self.fits(&said, wanted), "{line} => {said}, but not {wanted}");
                if let Some(span) = span {
                    assert!(within(span, took.as_millis()), "{line} took {took:?}, not {span} ms");
                }
            }
        }
    }

    /// The URL, this play's names and what was remembered put in their places.
    fn filled_in(&self, command: &str) -> String {
        let mut words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        match words[0].as_str() {
            "open" => {
                // On a busy machine a store may be slow, and only one that stands still is judged for that.
                let (url, io_timeout) = match &self.proxy {
                    Some(proxy) => (self.store.url_through(proxy.port()), "1s"),
                    None => (self.store.url(), "10s"),
                };
                let own = if words.len() > 1 { words.pop() } else { None };
                words.push(format!("{url}?io_timeout={}", own.as_deref().unwrap_or(io_timeout)));
            }
            "lock" => words[2] = format!("{}{}", self.prefix, words[2]),
            _ => {}
        }
        for word in &mut words[1..] {
            if let Some(value) = self.remembered.get(word) {
                word.clone_from(value);
            }
        }
        words.join(" ")
    }

    fn fits(&mut self, said: &str, wanted: &str) -> bool {
        let (said, wanted): (Vec<_>, Vec<_>) =
            (said.split_whitespace().collect(), wanted.split_whitespace().collect());
        said.len() == wanted.len()
            && said.iter().zip(wanted).all(|(said, wanted)| {
                if wanted.contains("..") {
                    return said.parse().is_ok_and(|number: u128| within(wanted, number));
                }
                if wanted
                    .chars()
                    .all(|letter| letter.is_ascii_uppercase() || letter.is_ascii_digit())
                {
                    self.remembered.insert(wanted.to_owned(), (*said).to_owned());
                    return true;
                }
                wanted.split('|').any(|wanted| *said == wanted)
            })
    }

    fn check(&self, comparison: &str) {
        let words: Vec<_> = comparison.split_whitespace().collect();
        let known = |name: &str| number(&self.remembered[name]);
        let (left, right) = (known(words[0]), known(words[2]));
        let holds = match words[1] {
            ">" => left > right,
            "=" => left == right,
            other => panic!("no comparison: {other}"),
        };
        assert!(holds, "check: {comparison}, with {left} and {right}");
    }

    fn at_the_server(&mut self, command: &str) -> String {
        let words: Vec<_> = command.split_whitespace().collect();
        let name = words.get(1).map(|name| format!("{}{name}", self.prefix));
        let name = name.as_deref().unwrap_or_default();
        match (words[0], words.get(2..).unwrap_or_default()) {
            // What is said to it lies there until it goes on.
            ("stop", _) => self.proxy().set(Mode::HoldRequests),
            ("cont", _) => self.proxy().deliver(),
            ("del", _) => self.store.forget(name),
            ("waiting", [count]) => {
                let (client, count) = (self.store.client(), number(count));
                let lock = client.lock(name);
                eventually(LIMIT, || lock.inspect().unwrap().waiters.len() as u64 == count);
            }
            ("set", [value]) => drop(self.redis(&["SET", name, value])),
            ("set", [value, ms]) => drop(self.redis(&["SET", name, value, "PX", ms])),
            ("get", _) => return redis::from_redis_value(self.redis(&["GET", name])).unwrap(),
            _ => panic!("no command for the server: {command}"),
        }
        "ok".to_owned()
    }

    fn proxy(&mut self) -> &mut Proxy {
        self.proxy.as_mut().expect("a play that stops the server has one")
    }

    fn redis(&self, command: &[&str]) -> redis::Value {
        let Store::Redis(server) = self.store else { panic!("{command:?} is said to a Redis") };
        server.cmd(command)
    }
}

/// Whether a number lies in a span like `1..9900`, ends included.
fn within(span: &str, found: u128) -> bool {
    let (least, most) = span.split_once("..").unwrap();
    (u128::from(number(least))..=u128::from(number(most))).contains(&found)
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("no number: {text}"))
}
