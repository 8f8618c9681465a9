//! What a URL begins with, and what somebody may have meant who left that out.

use std::net::{Ipv4Addr, SocketAddr};

use crate::config::nearest::nearest;
use crate::config::{TlsWords, bad};
use crate::error::Error;

/// A scheme, in lower case and as this library says it.
#[derive(Clone, Copy)]
pub(super) struct Scheme {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
}

/// What the URLs of a scheme lead to. Whatever differs between kinds is a `match` without a `_` arm, so that
/// the compiler finds each place that a new one needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Redis(Form),
    Sqlite,
    Memory,
    Postgres,
    Mysql,
    Zookeeper,
    Etcd,
}

/// How a Redis is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    Host,
    Socket,
    Sentinel,
    Cluster,
}

const fn scheme(name: &'static str, kind: Kind) -> Scheme {
    Scheme { name, kind }
}

pub(super) const SCHEMES: [Scheme; 15] = [
    scheme("redis", Kind::Redis(Form::Host)),
    scheme("rediss", Kind::Redis(Form::Host)),
    scheme("unix", Kind::Redis(Form::Socket)),
    scheme("redis+unix", Kind::Redis(Form::Socket)),
    scheme("redis+sentinel", Kind::Redis(Form::Sentinel)),
    scheme("rediss+sentinel", Kind::Redis(Form::Sentinel)),
    scheme("redis+cluster", Kind::Redis(Form::Cluster)),
    scheme("rediss+cluster", Kind::Redis(Form::Cluster)),
    scheme("sqlite", Kind::Sqlite),
    scheme("memory", Kind::Memory),
    scheme("postgres", Kind::Postgres),
    scheme("mysql", Kind::Mysql),
    scheme("zookeeper", Kind::Zookeeper),
    scheme("etcd", Kind::Etcd),
    scheme("etcds", Kind::Etcd),
];

/// The scheme of a URL, read in any case and with redis for valkey, postgres for
/// postgresql and mysql for mariadb, and what is behind its colon.
pub(super) fn split(url: &str) -> Option<(Scheme, &str)> {
    let (given, rest) = url.split_once(':')?;
    let given = given.to_ascii_lowercase();
    let given = given.strip_prefix("valkey").map_or(given.clone(), |rest| format!("redis{rest}"));
    let given = match &*given {
        "postgresql" => "postgres",
        "mariadb" => "mysql",
        given => given,
    };
    SCHEMES.into_iter().find(|known| known.name == given).map(|known| (known, rest))
}

impl Kind {
    /// Whether a path of this machine comes next.
    pub(super) fn is_path(self) -> bool {
        match self {
            Kind::Redis(Form::Socket) | Kind::Sqlite => true,
            Kind::Redis(Form::Host | Form::Sentinel | Form::Cluster)
            | Kind::Memory
            | Kind::Postgres
            | Kind::Mysql
            | Kind::Zookeeper
            | Kind::Etcd => false,
        }
    }
}

/// What others write in the place of our schemes, and what to write instead.
const OTHERS: [(&str, &str); 14] = [
    ("jdbc:postgresql", "leave 'jdbc:' out, and write postgres://user:password@host/database"),
    ("jdbc:mysql", "leave 'jdbc:' out, and write mysql://user:password@host/database"),
    ("jdbc:mariadb", "leave 'jdbc:' out, and write mysql://user:password@host/database"),
    ("jdbc:sqlite", "leave 'jdbc:' out, and write sqlite:/path/to/file"),
    ("jdbc:", "no JDBC driver is used: write postgres://, mysql:// or sqlite:"),
    ("r2dbc:", "no R2DBC driver is used: write postgres:// or mysql://"),
    ("https:", "an etcd with TLS is etcds://host:2379; no other store speaks HTTP"),
    ("http:", "an etcd is etcd://host:2379; no other store speaks HTTP"),
    ("postgresql+", "leave out the driver behind the '+', as in postgres://user@host/database"),
    ("postgres+", "leave out the driver behind the '+', as in postgres://user@host/database"),
    ("mysql+", "leave out the driver behind the '+', as in mysql://user@host/database"),
    ("mariadb+", "leave out the driver behind the '+', as in mysql://user@host/database"),
    ("file:", "a file is sqlite:/path/to/file"),
    ("tcp:", "a Redis is redis://host:6379"),
];

/// Repeats addresses only: the rest may be a password that somebody pasted.
pub(super) fn missing(url: &str) -> Error {
    if url.trim().is_empty() {
        return bad(
            "the URL is empty: write one, as in redis://127.0.0.1:6379 (a variable in its \
             place may not be set)",
        );
    }
    if url.starts_with(char::is_whitespace) {
        return bad("the URL begins with a space or a line break: leave it out");
    }
    let begins =
        |begin: &str| url.get(..begin.len()).is_some_and(|given| given.eq_ignore_ascii_case(begin));
    if let Some((begin, instead)) = OTHERS.into_iter().find(|(begin, _)| begins(begin)) {
        let begin = begin.trim_end_matches('+');
        return bad(format!("the URL begins with '{begin}', which is no store's: {instead}"));
    }
    let places: Vec<_> = url.split('?').next().unwrap_or(url).split(',').collect();
    if places.iter().all(|place| is_place(place)) {
        let meant: Vec<_> = places.iter().map(|place| format!("redis://{place}")).collect();
        return bad(format!("the URL has no scheme; did you mean {}?", meant.join(",")));
    }
    let near = url.split_once("://").and_then(|(given, _)| {
        nearest(
            given,
            SCHEMES.into_iter().map(|known| known.name).chain(["valkey", "valkeys", "mariadb"]),
        )
    });
    if let Some(near) = near {
        return bad(format!("the URL's scheme is unknown; did you mean {near}://?"));
    }
    let path = url.starts_with(['/', '.', '~']) && !url.contains("://");
    bad(match path {
        true => {
            "the URL has no scheme; a file has sqlite: before its path, as in sqlite:/var/lib/locks.db"
        }
        false => {
            "the URL begins with no scheme that is known; there are redis:// (or valkey://), \
             redis+sentinel://, redis+cluster:// and with TLS rediss:// in their places, unix://, \
             sqlite:, memory:, postgres://, mysql://, zookeeper:// and \
             etcd://, as in redis://127.0.0.1:6379"
        }
    })
}

/// How a URL asks for TLS whose scheme is this one, which has none.
pub(super) fn with_tls(scheme: &str) -> Option<&'static str> {
    match scheme {
        "redis" => Some(TlsWords::REDIS.on),
        "redis+sentinel" => Some("write rediss+sentinel://"),
        "redis+cluster" => Some("write rediss+cluster://"),
        "etcd" => Some(TlsWords::ETCD.on),
        "zookeeper" => Some(TlsWords::ZOOKEEPER.on),
        _ => None,
    }
}

/// `localhost`, `10.0.0.7`, `host:6379` or `host:6379/2`.
pub(super) fn is_place(text: &str) -> bool {
    let (place, database) = text.split_once('/').unwrap_or((text, "0"));
    let is_host = |host: &str| {
        !host.is_empty()
            && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    };
    let is_address = match place.rsplit_once(':') {
        Some((host, port)) if is_host(host) => port.parse::<u16>().is_ok(),
        Some(_) => place.parse::<SocketAddr>().is_ok(),
        None => place.eq_ignore_ascii_case("localhost") || place.parse::<Ipv4Addr>().is_ok(),
    };
    is_address && database.bytes().all(|byte| byte.is_ascii_digit())
}
