//! Whether the user may do what locks do: each command is tried in a way that changes nothing, on a
//! connection of its own, which is subscribed in the end.

use redis::{Cmd, Value};

use super::probe::{Probe, refused};
use crate::config::{RedisConfig, Servers};
use crate::error::Error;
use crate::examination::{Examination, Subject, kind};
use crate::store::redis::dialect::keys::{MARKER, with_keys};
use crate::token::Token;

/// The right for a command, and the command with KEY for a key that is not there: SET asks for two
/// things that exclude each other, the script is none, and the others find nothing to change.
const NEEDED: [(&str, &str); 8] = [
    ("+evalsha", "EVALSHA 0000000000000000000000000000000000000000 0"),
    ("+script|load", "SCRIPT LOAD ("),
    ("+time", "TIME"),
    ("+get", "GET KEY"),
    ("+set", "SET KEY none NX XX"),
    ("+pttl", "PTTL KEY"),
    ("+pexpire", "PEXPIRE KEY 1000"),
    ("+del", "DEL KEY"),
];

/// What a lock can do without.
const USEFUL: [(&str, &str); 12] = [
    ("+info", "INFO server"),
    ("+setrange", "SETRANGE KEY 0 "),
    ("+zadd", "ZADD KEY XX 0 none"),
    ("+zrem", "ZREM KEY none"),
    ("+zpopmin", "ZPOPMIN KEY"),
    ("+zrange", "ZRANGE KEY 0 0"),
    ("+zrank", "ZRANK KEY none"),
    ("+zscore", "ZSCORE KEY none"),
    ("+zcard", "ZCARD KEY"),
    ("+ping", "PING"),
    ("+publish", "PUBLISH leasehold:wake:doctor none"),
    ("+subscribe", "SUBSCRIBE leasehold:wake:doctor"),
];

/// In a Cluster from 7.0 on, a channel has a slot as keys do.
const SHARDED: [(&str, &str); 2] = [
    ("+spublish", "SPUBLISH leasehold:wake:doctor none"),
    ("+ssubscribe", "SSUBSCRIBE leasehold:wake:doctor"),
];

/// What more is needed, and for what.
fn more(redis: &RedisConfig, subject: Subject<'_>) -> Vec<(&'static str, &'static str)> {
    let mut more = Vec::new();
    if subject.config.guard_data_loss {
        more.push(("+info", "INFO server"));
    }
    if redis.replicas > 0 {
        more.push(("+wait", "WAIT 0 1"));
    }
    match redis.servers {
        Servers::One(_) => {}
        Servers::Sentinel(_) => more.push(("+role", "ROLE")),
        Servers::Cluster(_) => {
            more.extend([("+cluster|slots", "CLUSTER SLOTS"), ("+asking", "ASKING")]);
        }
    }
    if redis.access.database != 0 {
        more.push(("+select", "SELECT 0"));
    }
    more
}

fn try_of(command: &str, key: &[u8]) -> Cmd {
    let mut tried = Cmd::new();
    for word in command.split(' ') {
        tried.arg(if word == "KEY" { key } else { word.as_bytes() });
    }
    tried
}

/// A command that is tried, with the right that it takes.
struct Try {
    right: String,
    command: Cmd,
    is_needed: bool,
    /// Whether the right is that to its key, and not to the command.
    is_of_key: bool,
}

fn tries(redis: &RedisConfig, subject: Subject<'_>, is_sharded: bool) -> Result<Vec<Try>, Error> {
    let (config, name) = (subject.config, &subject.checkup.name);
    let mut tries = Vec::new();
    let mut of_key = |is_needed, right: String, key: &[u8], commands: [&str; 2]| {
        tries.extend(commands.map(|command| {
            let (right, command) = (right.clone(), try_of(command, key));
            Try { right, command, is_needed, is_of_key: true }
        }));
    };
    // The rule for a key; whoever types it may mean more names than this one.
    let rule = |key: &[u8]| format!("~{}", key.escape_ascii());
    with_keys(&config.prefix, name, |[lock, side, queue, _]| {
        for key in [lock.concat(), side.concat()] {
            of_key(true, rule(&key), &key, ["GET KEY", "SETRANGE KEY 0 "]);
        }
        let queue = queue.concat();
        of_key(false, rule(&queue), &queue, ["ZSCORE KEY none", "ZADD KEY XX 0 none"]);
    });
    if config.registers {
        let client = b"leasehold:client:0";
        of_key(false, "~leasehold:client:*".to_owned(), client, ["GET KEY", "PTTL KEY"]);
    }
    if config.guard_data_loss && !matches!(redis.servers, Servers::Cluster(_)) {
        of_key(true, format!("~{MARKER}*"), MARKER.as_bytes(), ["GET KEY", "PTTL KEY"]);
    }
    let absent = [&config.prefix, &name[..], Token::random()?.to_string().as_bytes()].concat();
    let more = more(redis, subject);
    // A subscriber may say nothing else, so that comes last.
    let sharded = SHARDED.iter().filter(|_| is_sharded);
    let useful = USEFUL.iter().filter(|right| !more.contains(right)).chain(sharded);
    let needed = more.iter().chain(&NEEDED).map(|right| (right, true));
    for ((right, command), is_needed) in needed.chain(useful.map(|right| (right, false))) {
        let (right, command) = ((*right).to_owned(), try_of(command, &absent));
        tries.push(Try { right, command, is_needed, is_of_key: false });
    }
    Ok(tries)
}

pub(super) fn examine(
    probe: &mut Probe,
    redis: &RedisConfig,
    subject: Subject<'_>,
    is_sharded: bool,
    found: &mut Examination,
) -> Result<(), Error> {
    let tries = tries(redis, subject, is_sharded)?;
    let commands: Vec<_> = tries.iter().map(|it| it.command.clone()).collect();
    let (mut unknown, mut missing, mut unable) = (Vec::new(), Vec::new(), Vec::new());
    for (Try { right, is_needed, is_of_key, .. }, said) in
        tries.into_iter().zip(probe.ask(&commands)?)
    {
        let Value::ServerError(error) = &said else { continue };
        let says = |words| error.details().is_some_and(|it| it.to_lowercase().contains(words));
        let is_of_command = says("permissions to run");
        let right = match is_of_key {
            false if says("unknown command") => {
                unknown.push(right.replace('+', ""));
                continue;
            }
            _ if !refused(&said) => continue,
            false if says("channel") => "&leasehold:wake:*".to_owned(),
            _ if is_of_key == is_of_command => continue,
            _ => right,
        };
        if is_needed { &mut missing } else { &mut unable }.push(right);
    }
    found.listed(&probe.at, kind!("redis-command-missing"), &unknown, " ");
    for (kind, mut lacking) in
        [(kind!("redis-rights"), missing), (kind!("redis-lesser-rights"), unable)]
    {
        lacking.dedup();
        lacking.sort_by_key(|right| right.starts_with('~'));
        probe.lacks(kind, &lacking, found);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_right_of_the_guide_is_tried() {
        let page = include_str!("../../../../docs/operate/rights.md");
        let lines = page.lines().filter(|line| line.starts_with("ACL SETUSER app"));
        let said = lines.flat_map(|line| line.split(' ')).filter(|word| word.starts_with('+'));
        let mut said: Vec<_> = said.collect();
        let mut tried: Vec<_> = NEEDED.iter().chain(&USEFUL).map(|(right, _)| *right).collect();
        said.sort_unstable();
        tried.sort_unstable();
        assert_eq!(tried, said);
    }
}
