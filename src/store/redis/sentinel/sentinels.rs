//! Asking the Sentinels where the master is, and what to make of answers that differ.

use std::time::Duration;

use redis::Value;

use super::news::{News, address};
use crate::clock::{Deadline, Moment};
use crate::config::{Address, SentinelConfig};
use crate::error::{Error, ErrorKind};
use crate::said::say;
use crate::store::net::dial::Show;
use crate::store::redis::dial::{Dialer, Greeting};
use crate::store::redis::server_source::NO_SERVER;
use crate::store::redis::{fault, frame};

pub(super) struct Sentinels {
    /// The one that answered last comes first.
    hosts: Vec<Address>,
    dialer: Dialer,
    name: String,
    /// All that one of them is asked, sent in one write.
    question: Vec<u8>,
    /// The log has been told that we may not ask for the number of a configuration.
    warned: bool,
    /// An older configuration that most of the Sentinels tell of, and when they first did.
    pub(super) majority: Option<((Address, Option<u64>), Moment)>,
}

pub(super) struct Answer {
    pub(super) master: Address,
    /// The number of the configuration; none where we may not ask.
    pub(super) epoch: Option<u64>,
    /// Tells of every later master; none where we may not listen.
    pub(super) news: Option<News>,
}

/// A failover has reached every Sentinel within seconds. Sentinels that tell of an older configuration
/// for longer than that were set up anew.
pub(super) const SETTLED: Duration = Duration::from_secs(10);

impl Answer {
    fn told(&self) -> (Address, Option<u64>) {
        (self.master.clone(), self.epoch)
    }
}

impl Sentinels {
    pub(super) fn new(config: &SentinelConfig) -> Result<Sentinels, Error> {
        let (hosts, name) = (config.hosts.clone(), config.master.clone());
        let mut question = Vec::new();
        for what in ["GET-MASTER-ADDR-BY-NAME", "MASTER"] {
            redis::cmd("SENTINEL").arg(what).arg(&name).write_packed_command(&mut question);
        }
        // Last, since a subscriber may ask nothing else. It is carried out with the two before, so
        // that nothing is missed in between.
        redis::cmd("SUBSCRIBE").arg("+switch-master").write_packed_command(&mut question);
        let dialer = Dialer::new(&config.access, Greeting::default(), &hosts)?;
        Ok(Sentinels { hosts, dialer, name, question, warned: false, majority: None })
    }

    /// Asks one after the other until one of them tells of a configuration that is not older than
    /// `epoch`. Each has a share of the time, and so has what comes afterwards. What most Sentinels
    /// have told for long is believed though it is older, unless a master can be reached (`known`).
    pub(super) fn ask(
        &mut self,
        epoch: u64,
        known: bool,
        deadline: Deadline,
        show: &Show<'_>,
    ) -> Result<Answer, Error> {
        let (mut older, mut strangers, mut errors) = (Vec::new(), 0, Vec::new());
        let count = self.hosts.len();
        for index in 0..count {
            match self.ask_one(index, deadline.share(count - index + 1), show) {
                Ok(Some(answer)) if answer.epoch.is_none_or(|told| told >= epoch) => {
                    self.hosts[..=index].rotate_right(1);
                    self.majority = None;
                    return Ok(answer);
                }
                Ok(Some(answer)) => older.push(answer),
                Ok(None) => strangers += 1,
                Err(error) if error.kind() == ErrorKind::Exhausted => return Err(error),
                Err(error) => errors.push(about(&self.hosts[index], error)),
            }
        }
        if !known
            && let Some(index) = told_by_most(&older, count)
            && self.is_settled(&older[index])
        {
            return Ok(older.swap_remove(index));
        }
        let (some, all, name) = (!older.is_empty(), older.len() == count, &self.name);
        // All of them together do not err: they were set up anew. A Sentinel that does not answer
        // may know better, for a while.
        if let Some(newest) = older.into_iter().max_by_key(|answer| answer.epoch)
            && all
        {
            return Ok(newest);
        }
        Err(if some {
            let what = format!("the Sentinels that answer have missed a failover of '{name}'");
            Error::new(ErrorKind::Unavailable, what)
        } else if strangers > 0 {
            let what = format!("no Sentinel knows a master '{name}'; {strangers} of {count}");
            Error::new(ErrorKind::BadArgument, format!("{what} were reached"))
        } else {
            worst(errors, count)
        })
    }

    fn ask_one(
        &mut self,
        index: usize,
        deadline: Deadline,
        show: &Show<'_>,
    ) -> Result<Option<Answer>, Error> {
        let mut wire = self.dialer.dial(&self.hosts[index], NO_SERVER, deadline, show)?;
        let sent = wire.send(&self.question, deadline);
        sent.map_err(|(_, error)| fault::io("the question", &error))?;
        let Some(master) = read_address(wire.receive(deadline)?)? else { return Ok(None) };
        let told = wire.receive(deadline)?;
        self.warn(&told);
        let epoch = read_epoch(&told);
        let subscribed = frame::begins(&wire.receive(deadline)?, b"subscribe");
        Ok(Some(Answer { master, epoch, news: subscribed.then(|| News::new(wire)) }))
    }

    fn warn(&mut self, told: &Value) {
        let Value::ServerError(error) = told else { return };
        let error = fault::server(error);
        if error.kind() == ErrorKind::Permission && !std::mem::replace(&mut self.warned, true) {
            say!(
                Warn,
                "sentinel-rights",
                group = &*self.name,
                needs = "+sentinel|master",
                error = error
            );
        }
    }

    /// Whether most of them have told this for so long that it is no failover that they have missed.
    fn is_settled(&mut self, answer: &Answer) -> bool {
        let now = Moment::now();
        let same = self.majority.take_if(|(told, _)| *told == answer.told());
        let since = same.map_or(now, |(_, since)| since);
        self.majority = Some((answer.told(), since));
        now.since(since) >= SETTLED
    }
}

fn told_by_most(answers: &[Answer], count: usize) -> Option<usize> {
    let same = |one: &Answer| answers.iter().filter(|other| other.told() == one.told()).count();
    answers.iter().position(|one| same(one) > count / 2)
}

/// Says which one, if that is not said yet.
fn about(host: &Address, error: Error) -> Error {
    if error.detail().contains(&host.to_string()) { error } else { error.at(host) }
}

/// The error that says most of those that the Sentinels ended with.
fn worst(errors: Vec<Error>, count: usize) -> Error {
    let rank = |error: &&Error| match error.kind() {
        _ if !error.is_retriable() => 0,
        ErrorKind::NoAnswer => 1,
        _ => 2,
    };
    let Some(worst) = errors.iter().min_by_key(rank) else {
        return Error::new(ErrorKind::BadArgument, "there are no Sentinels to ask");
    };
    let what = match count {
        1 => "the Sentinel tells no master".to_owned(),
        count => format!("none of the {count} Sentinels tells the master"),
    };
    worst.clone().at(what)
}

fn read_address(value: Value) -> Result<Option<Address>, Error> {
    let unreadable = || Error::new(ErrorKind::Protocol, "no host and port where a master's belong");
    match value {
        Value::Nil => Ok(None),
        Value::ServerError(error) => Err(fault::server(&error)),
        Value::Array(said) => {
            let [host, port] = [0, 1].map(|at| said.get(at).and_then(text));
            let (host, port) = host.zip(port).ok_or_else(unreadable)?;
            address(host, port).map(Some).ok_or_else(unreadable)
        }
        _ => Err(unreadable()),
    }
}

fn read_epoch(value: &Value) -> Option<u64> {
    let Value::Array(said) = value else { return None };
    let mut pairs = said.chunks_exact(2).map(|pair| (text(&pair[0]), text(&pair[1])));
    let (_, number) = pairs.find(|(field, _)| *field == Some("config-epoch"))?;
    number?.parse().ok()
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}
