//! URLs of stores. Read here rather than by the `url` crate, which knows the rules of the web
//! instead of these: it refuses several hosts in one URL, changes what it was given, and brings
//! tables of international host names with it.
//!
//! No error made here repeats the URL: it may hold a password.

mod quorum;
mod server;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use super::{Config, StoreConfig, bad, embedded_path, parse_duration};
use crate::error::Error;

pub(super) use quorum::split;

/// Reads the URL of a store, or those of a quorum.
pub(super) fn parse(urls: &[&str]) -> Result<Config, Error> {
    let [url] = urls else { return quorum::read(urls) };
    let mut parts = Parts::read(url)?;
    let store = if parts.scheme != "sqlite" {
        StoreConfig::Redis(Box::new(server::read(&mut parts)?))
    } else if cfg!(feature = "sqlite") {
        StoreConfig::Sqlite(file_path(parts.body)?.map_or_else(embedded_path, Ok)?)
    } else {
        return Err(bad(
            "sqlite needs leasehold built with its feature 'sqlite'; for Redis give a URL such as \
             redis://127.0.0.1",
        ));
    };
    parts.settle(Config::new(store))
}

/// A URL, taken apart.
struct Parts<'a> {
    scheme: &'a str,
    body: &'a str,
    /// The parameters, each to be taken once; what is left at the end was not known.
    given: Vec<(&'a str, Vec<u8>)>,
    /// The keys that were asked for.
    known: Vec<&'static str>,
}

type Setting = (&'static str, fn(Config, Vec<u8>) -> Result<Config, Error>);

/// What concerns a client as a whole. In a quorum, the last URL has it.
const SETTINGS: [Setting; 7] = [
    ("io_timeout", |config, value| Ok(config.io_timeout(span(value)?))),
    ("pool", |config, value| Ok(config.pool(count(value)?))),
    ("close_timeout", |config, value| Ok(config.close_timeout(span(value)?))),
    ("claim_window", |config, value| Ok(config.claim_window(span(value)?))),
    ("prefix", |config, value| Ok(config.prefix(value))),
    ("max_ttl", |config, value| Ok(config.max_ttl(span(value)?))),
    ("guard_data_loss", |config, value| Ok(config.guard_data_loss(switch(value)?))),
];

impl<'a> Parts<'a> {
    fn read(url: &'a str) -> Result<Parts<'a>, Error> {
        let (scheme, rest) = url.split_once(':').ok_or_else(|| {
            bad("the URL has no scheme; write for example redis://127.0.0.1 or sqlite:///path")
        })?;
        let (body, query) = rest.split_once('?').unwrap_or((rest, ""));
        if body.contains('#') {
            return Err(bad("the URL has a '#'; write it as %23"));
        }
        let mut given: Vec<(&str, Vec<u8>)> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair
                .split_once('=')
                .ok_or_else(|| bad("the URL has a parameter without '='; write it as key=value"))?;
            if given.iter().any(|(known, _)| *known == key) {
                return Err(bad(format!("the URL gives '{key}' twice")));
            }
            given.push((key, percent_decode_str(value).collect()));
        }
        Ok(Parts { scheme, body, given, known: Vec::new() })
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
        value.map(Some).map_err(|error| bad(format!("{key}: {}", error.detail())))
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
        Err(bad(format!(
            "the URL's key '{key}' is not known for {}; known are {}",
            self.scheme,
            self.known.join(", ")
        )))
    }
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

/// `///path`, `/path` or `path`; nothing at all is `None`.
fn file_path(body: &str) -> Result<Option<PathBuf>, Error> {
    use std::os::unix::ffi::OsStringExt;

    let path = match body.strip_prefix("//") {
        Some("") => "",
        Some(path) if path.starts_with('/') => path,
        None => body,
        Some(_) => {
            return Err(bad(
                "a path after '//' begins with another '/', as in sqlite:///var/lib/locks.db",
            ));
        }
    };
    let path: Vec<u8> = percent_decode_str(path).collect();
    if path.contains(&0) {
        return Err(bad("a path cannot hold a NUL"));
    }
    Ok(Some(PathBuf::from(std::ffi::OsString::from_vec(path)))
        .filter(|path| !path.as_os_str().is_empty()))
}
