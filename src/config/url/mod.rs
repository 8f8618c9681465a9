//! URLs of stores. Read here rather than by the `url` crate, which knows the rules of the web
//! instead of these: it refuses several hosts in one URL, changes what it was given, and brings
//! tables of international host names with it.
//!
//! No error made here repeats the URL: it may hold a password.

#[cfg(feature = "etcd")]
mod etcd;
mod file;
#[cfg(feature = "testing")]
mod memory;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
mod quorum;
mod scheme;
mod server;
#[cfg(test)]
mod tests;
mod tls;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use std::time::Duration;

use percent_encoding::percent_decode_str;

use self::scheme::{Kind, Scheme};
use super::nearest::nearest;
use super::{Config, StoreConfig, bad, parse_duration};
use crate::error::Error;

pub(super) use quorum::split;

/// Reads the URL of a store, or those of a quorum.
pub(super) fn parse(urls: &[&str]) -> Result<Config, Error> {
    let [url] = urls else { return quorum::read(urls) };
    let mut parts = Parts::read(url)?;
    let store = match parts.kind {
        Kind::Redis(form) => StoreConfig::Redis(Box::new(server::read(&mut parts, form)?)),
        #[cfg(feature = "testing")]
        Kind::Memory if cfg!(feature = "testing") => StoreConfig::Memory(memory::read(&parts)?),
        Kind::Sqlite if cfg!(feature = "sqlite") => StoreConfig::Sqlite(file::read(&mut parts)?),
        #[cfg(feature = "postgres")]
        Kind::Postgres if cfg!(feature = "postgres") => {
            StoreConfig::Postgres(Box::new(postgres::read(&mut parts)?))
        }
        #[cfg(feature = "mysql")]
        Kind::Mysql if cfg!(feature = "mysql") => {
            StoreConfig::Mysql(Box::new(mysql::read(&mut parts)?))
        }
        #[cfg(feature = "zookeeper")]
        Kind::Zookeeper if cfg!(feature = "zookeeper") => {
            StoreConfig::Zookeeper(Box::new(zookeeper::read(&mut parts)?))
        }
        #[cfg(feature = "etcd")]
        Kind::Etcd if cfg!(feature = "etcd") => {
            StoreConfig::Etcd(Box::new(etcd::read(&mut parts)?))
        }
        Kind::Memory
        | Kind::Sqlite
        | Kind::Postgres
        | Kind::Mysql
        | Kind::Zookeeper
        | Kind::Etcd => {
            let (store, feature) = match parts.scheme {
                "etcds" => ("etcd", "etcd"),
                "memory" => ("memory", "testing"),
                scheme => (scheme, scheme),
            };
            return Err(bad(format!(
                "{store} needs leasehold built with its feature '{feature}'; for Redis give a \
                 URL such as redis://127.0.0.1"
            )));
        }
    };
    parts.settle(Config::new(store))
}

/// A URL, taken apart.
struct Parts<'a> {
    scheme: &'static str,
    kind: Kind,
    body: &'a str,
    /// What looks like parameters may be the end of a password.
    is_dubious: bool,
    /// An unknown key may be the end of a password.
    has_password: bool,
    /// The parameters, each to be taken once; what is left at the end was not known.
    given: Vec<(&'a str, Vec<u8>)>,
    /// The keys that were asked for.
    known: Vec<&'static str>,
}

type Setting = (&'static str, fn(Config, Vec<u8>) -> Result<Config, Error>);

/// What concerns a client as a whole. In a quorum, the last URL has it.
const SETTINGS: [Setting; 11] = [
    ("io_timeout", |config, value| Ok(config.io_timeout(span(value)?))),
    ("pool", |config, value| Ok(config.pool(count(value)?))),
    ("close_timeout", |config, value| Ok(config.close_timeout(span(value)?))),
    ("claim_window", |config, value| Ok(config.claim_window(span(value)?))),
    ("fence_life", |config, value| Ok(config.fence_life(span(value)?))),
    ("prefix", |config, value| Ok(config.prefix(value))),
    ("max_ttl", |config, value| Ok(config.max_ttl(span(value)?))),
    ("guard_data_loss", |config, value| Ok(config.guard_data_loss(switch(value)?))),
    ("label", |config, value| Ok(config.label(text(value)?))),
    ("register", |config, value| Ok(config.register(switch(value)?))),
    ("advise", |config, value| Ok(config.advise(switch(value)?))),
];

impl<'a> Parts<'a> {
    fn read(url: &'a str) -> Result<Parts<'a>, Error> {
        let (Scheme { name: scheme, kind }, rest) =
            scheme::split(url).ok_or_else(|| scheme::missing(url))?;
        let (body, query) = rest.split_once('?').unwrap_or((rest, ""));
        let is_dubious = query.contains('@') && !body.contains('@');
        let has_password = query.contains("password=");
        let refuse = |why: String| if is_dubious { split_password() } else { bad(why) };
        if rest.contains('#') {
            return Err(bad(
                "the URL has a '#'; write it as %23, and a comment on a line of its own",
            ));
        }
        // What nobody sees would name another prefix or another file.
        let is_unseen = |character: char| character.is_control() || character.is_whitespace();
        let has_spaces = kind.is_path() && body.trim() == body;
        // A secret that was read from a file has one.
        if url.ends_with(['\n', '\r']) {
            return Err(bad(
                "the URL ends with a line break, as what was read from a file does: trim it",
            ));
        }
        if query.contains(is_unseen)
            || body.contains(|character| is_unseen(character) && !(has_spaces && character == ' '))
        {
            return Err(bad(
                "the URL has a space, a line break or another invisible character: leave it \
                 out, or write it as %20, %0A and so on; only a path has spaces as they are, and \
                 not at its ends",
            ));
        }
        let mut given: Vec<(&str, Vec<u8>)> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').ok_or_else(|| {
                refuse("a parameter of the URL has no '='; write key=value".into())
            })?;
            if given.iter().any(|(known, _)| *known == key) {
                return Err(refuse(match has_password {
                    true => format!("the URL gives a key twice{ESCAPED}"),
                    false => format!("the URL gives '{key}' twice"),
                }));
            }
            given.push((key, decode("parameter", value)?));
        }
        Ok(Parts { scheme, kind, body, is_dubious, has_password, given, known: Vec::new() })
    }

    fn take<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(Vec<u8>) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        self.known.push(key);
        let Some(index) = self.given.iter().position(|(given, _)| *given == key) else {
            return Ok(None);
        };
        let value = read(self.given.swap_remove(index).1);
        value.map(Some).map_err(|error| match self.is_dubious {
            true => split_password(),
            false => error.at(key),
        })
    }

    /// Sets up a client for a store, with the parameters that are left.
    fn settle(mut self, mut config: Config) -> Result<Config, Error> {
        for (key, set) in SETTINGS {
            if let Some(changed) = self.take(key, |value| set(config.clone(), value))? {
                config = changed;
            }
        }
        self.finish()?;
        config.check()?;
        Ok(config)
    }

    fn finish(&self) -> Result<(), Error> {
        let Some((key, _)) = self.given.first() else { return Ok(()) };
        if SETTINGS.iter().any(|(setting, _)| setting == key) {
            return Err(bad(format!("'{key}' concerns the whole quorum; the last URL has it")));
        }
        if self.is_dubious {
            return Err(split_password());
        }
        let near = nearest(key, self.known.iter().copied());
        let meant = match (scheme::with_tls(self.scheme), near) {
            (Some(tls), _) if matches!(*key, "ca" | "cert" | "key") => {
                format!("it is for TLS: {tls}")
            }
            (_, Some(near)) => format!("did you mean {near}?"),
            (_, None) => format!("known are {}", self.known.join(", ")),
        };
        Err(bad(match self.has_password {
            true => format!("a key of the URL is not known for {}: {meant}{ESCAPED}", self.scheme),
            false => format!("the URL's key '{key}' is not known for {}: {meant}", self.scheme),
        }))
    }
}

const ESCAPED: &str = " (an '&' in a password is written as %26)";

/// Whether somebody who wrote this may have meant a store.
pub(super) fn is_likely(text: &str) -> bool {
    let is_place = |place: &str| scheme::is_place(place) && place.contains("6379");
    scheme::split(text)
        .is_some_and(|(scheme, rest)| scheme.kind.is_path() || rest.starts_with("//"))
        || text.split(',').all(is_place)
}

fn split_password() -> Error {
    bad(
        "the URL has a '?' before its last '@'; in a password it is written as %3F, and an '@' in a \
         parameter as %40",
    )
}

/// A part of the URL, with its `%` and two hex digits read.
fn decode(what: &str, text: &str) -> Result<Vec<u8>, Error> {
    let is_read = |part: &str| {
        part.len() >= 2 && part.as_bytes()[..2].iter().all(|digit| digit.is_ascii_hexdigit())
    };
    if !text.split('%').skip(1).all(is_read) {
        return Err(bad(format!(
            "the URL's {what} has a '%' without two hex digits behind it; a '%' itself is written \
             as %25"
        )));
    }
    Ok(percent_decode_str(text).collect())
}

fn text(value: Vec<u8>) -> Result<String, Error> {
    String::from_utf8(value).map_err(|_| bad("it is not UTF-8"))
}

fn count(value: Vec<u8>) -> Result<u32, Error> {
    text(value)?.parse().map_err(|_| bad("it is a whole number"))
}

fn span(value: Vec<u8>) -> Result<Duration, Error> {
    parse_duration(&text(value)?)
}

fn switch(value: Vec<u8>) -> Result<bool, Error> {
    match value.as_slice() {
        b"yes" => Ok(true),
        b"no" => Ok(false),
        _ => Err(bad("it is yes or no")),
    }
}
