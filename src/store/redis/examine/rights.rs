//! Whether the user may do what locks do: each command is tried in a way that changes nothing, on a
//! connection of its own, which is subscribed in the end.

use redis::{Cmd, Value};

use super::kinds::{LESSER_RIGHTS, MISSING, RIGHTS};
use super::probe::{Probe, refused};
use crate::config::{RedisConfig, Servers};
use crate::error::Error;
use crate::examination::{Examination, Subject};
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

pub(super) fn examine(
    probe: &mut Probe,
    redis: &RedisConfig,
    subject: Subject<'_>,
    is_sharded: bool,
    found: &mut Examination,
) -> Result<(), Error> {
    let name = &subject.checkup.name;
    let random = Token::random()?.to_string();
    let absent = [&subject.config.prefix, &name[..], random.as_bytes()].concat();
    let more = more(redis, subject);
    // A subscriber may say nothing else, so that comes last.
    let sharded = SHARDED.iter().filter(|_| is_sharded);
    let useful = USEFUL.iter().filter(|right| !more.contains(right));
    let all = more.iter().chain(&NEEDED).chain(useful).chain(sharded);
    let all: Vec<_> = all.copied().collect();
    let [mut keys, mut others] = [vec![], vec![]];
    with_keys(&subject.config.prefix, name, |[lock, side, queue, _]| {
        for key in [lock, side] {
            for reads_or_writes in ["GET KEY", "SETRANGE KEY 0 "] {
                keys.push((shown(&key.concat()), try_of(reads_or_writes, &key.concat())));
            }
        }
        for reads_or_writes in ["ZSCORE KEY none", "ZADD KEY XX 0 none"] {
            others.push((shown(&queue.concat()), try_of(reads_or_writes, &queue.concat())));
        }
    });
    if subject.config.registers {
        others.push(("~leasehold:client:*".to_owned(), try_of("GET leasehold:client:0", b"")));
    }
    if subject.config.guard_data_loss && !matches!(redis.servers, Servers::Cluster(_)) {
        keys.push((format!("~{MARKER}*"), try_of("GET KEY", MARKER.as_bytes())));
    }
    let asked = keys.iter().chain(&others).map(|(_, tried)| tried.clone());
    let asked = asked.chain(all.iter().map(|(_, command)| try_of(command, &absent)));
    let said = probe.ask(&asked.collect::<Vec<_>>())?;
    let (of_keys, rest) = said.split_at(keys.len());
    let (of_others, of_commands) = rest.split_at(others.len());

    let (needed, useful) = all.split_at(more.len() + NEEDED.len());
    let (of_needed, of_useful) = of_commands.split_at(needed.len());
    let mut unknown = Vec::new();
    let mut lacks = |rights: &[(&'static str, &str)], said: &[Value]| {
        let mut lacking = Vec::new();
        for ((right, _), said) in rights.iter().zip(said) {
            match said {
                Value::ServerError(error) if is_unknown(error) => unknown.push(*right),
                said if is_command(said) => lacking.push((*right).to_owned()),
                said if is_channel(said) => lacking.push("&leasehold:wake:*".to_owned()),
                _ => {}
            }
        }
        lacking.dedup();
        lacking
    };
    let mut missing = lacks(needed, of_needed);
    let mut unable = lacks(useful, of_useful);
    let closed = |keys: &[(String, Cmd)], said: &[Value]| {
        let both = keys.iter().zip(said).filter(|(_, said)| refused(said) && !is_command(said));
        let mut closed: Vec<_> = both.map(|((key, _), _)| key.clone()).collect();
        closed.dedup();
        closed
    };
    missing.extend(closed(&keys, of_keys));
    unable.extend(closed(&others, of_others));
    if !unknown.is_empty() {
        found.found(&probe.at, &MISSING, unknown.join(" ").replace(['+'], ""));
    }
    for (kind, lacking) in [(&RIGHTS, missing), (&LESSER_RIGHTS, unable)] {
        if !lacking.is_empty() {
            let lacking = lacking.join(" ");
            let type_this = format!("ACL SETUSER {} {lacking}", probe.user);
            found.advise(&probe.at, kind, &lacking, type_this);
        }
    }
    Ok(())
}

/// The rule for a key; whoever types it may mean more names than this one.
fn shown(key: &[u8]) -> String {
    format!("~{}", key.escape_ascii())
}

fn is_unknown(error: &redis::ServerError) -> bool {
    error.details().is_some_and(|said| said.to_lowercase().starts_with("unknown command"))
}

fn is_command(said: &Value) -> bool {
    refused(said) && says(said, "permissions to run")
}

fn is_channel(said: &Value) -> bool {
    refused(said) && says(said, "channel")
}

fn says(said: &Value, words: &str) -> bool {
    matches!(said, Value::ServerError(error) if error.details().is_some_and(|it| it.contains(words)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_right_of_the_guide_is_tried() {
        let page = include_str!("../../../../docs/operating.md");
        let lines = page.lines().filter(|line| line.starts_with("ACL SETUSER app"));
        let said = lines.flat_map(|line| line.split(' ')).filter(|word| word.starts_with('+'));
        let mut said: Vec<_> = said.collect();
        let mut tried: Vec<_> = NEEDED.iter().chain(&USEFUL).map(|(right, _)| *right).collect();
        said.sort_unstable();
        tried.sort_unstable();
        assert_eq!(tried, said);
    }
}
