//! URLs of stores. Read here rather than by the `url` crate, which knows the rules of the web
//! instead of these: it refuses several hosts in one URL, changes what it was given, and brings
//! tables of international host names with it.
//!
//! No error made here repeats the URL: it may hold a password.

mod query;
mod quorum;
mod server;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use percent_encoding::percent_decode_str;

use self::query::Query;
use super::{Config, StoreConfig, bad, embedded_path};
use crate::error::Error;

/// Reads one URL, or several with commas between them.
pub(super) fn parse(urls: &str) -> Result<Config, Error> {
    parse_all(&quorum::split(urls))
}

/// Reads the URL of a store, or those of a quorum.
pub(super) fn parse_all(urls: &[&str]) -> Result<Config, Error> {
    match urls {
        [] => Err(bad("there is no URL")),
        [url] => single(url),
        urls => quorum::read(urls),
    }
}

fn single(url: &str) -> Result<Config, Error> {
    let mut parts = Parts::read(url)?;
    let store = match server::read(&mut parts)? {
        Some(redis) => StoreConfig::Redis(Box::new(redis)),
        None if parts.scheme != "sqlite" => return Err(unknown_scheme()),
        None if cfg!(not(feature = "sqlite")) => {
            return Err(bad("sqlite needs leasehold built with its feature 'sqlite'; for Redis \
                 give a URL such as redis://127.0.0.1"));
        }
        None => StoreConfig::Sqlite(file_path(parts.body)?.map_or_else(embedded_path, Ok)?),
    };
    parts.settle(Config::new(store))
}

/// A URL, taken apart.
struct Parts<'a> {
    scheme: &'a str,
    body: &'a str,
    query: Query,
}

impl<'a> Parts<'a> {
    fn read(url: &'a str) -> Result<Parts<'a>, Error> {
        let (scheme, rest) = url.split_once(':').ok_or_else(|| {
            bad("the URL has no scheme; write for example redis://127.0.0.1 or sqlite:///path")
        })?;
        let (body, query) = rest.split_once('?').unwrap_or((rest, ""));
        let query = Query::read(query)?;
        if body.contains('#') {
            return Err(bad("the URL has a '#'; write it as %23"));
        }
        Ok(Parts { scheme, body, query })
    }

    /// Sets up a client for a store, with the parameters that are left.
    fn settle(mut self, config: Config) -> Result<Config, Error> {
        let config = self.query.settings(config)?;
        self.query.finish(self.scheme)?;
        config.check()?;
        Ok(config)
    }
}

/// The scheme may be all of a password somebody pasted; it is not repeated either.
fn unknown_scheme() -> Error {
    bad("the URL's scheme is unknown; there are redis, rediss, unix and sqlite, as in \
         redis://127.0.0.1:6379, and redis+sentinel and redis+cluster, with rediss too")
}

/// `///path`, `/path` or `path`; nothing at all is `None`.
fn file_path(body: &str) -> Result<Option<PathBuf>, Error> {
    use std::os::unix::ffi::OsStringExt;

    let path = match body.strip_prefix("//") {
        Some(path) if path.starts_with('/') => path,
        Some("") | None => body,
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
    if path.is_empty() || path == b"//" {
        return Ok(None);
    }
    Ok(Some(PathBuf::from(std::ffi::OsString::from_vec(path))))
}
