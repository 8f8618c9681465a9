//! URLs of stores. Read here rather than by the `url` crate, which knows the rules of the web
//! instead of these: it refuses several hosts in one URL, changes what it was given, and brings
//! tables of international host names with it.

use std::path::PathBuf;

use percent_encoding::percent_decode_str;

use super::{
    Address, Config, RedisConfig, Secret, StoreConfig, TlsConfig, bad, embedded_path,
    parse_duration,
};
use crate::error::{Error, ErrorKind};

const REDIS_PORT: u16 = 6379;

/// No error made here repeats the URL: it may hold a password.
pub(super) fn parse(url: &str) -> Result<Config, Error> {
    let (scheme, rest) = url.split_once(':').ok_or_else(|| {
        bad("the URL has no scheme; write for example redis://127.0.0.1 or sqlite:///path".into())
    })?;
    let (body, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut query = Query::read(query)?;
    if body.contains('#') {
        return Err(bad("the URL has a '#'; write it as %23".to_owned()));
    }
    let store = match scheme {
        "redis" => StoreConfig::Redis(redis(authority(scheme, body)?, None)?),
        "rediss" => {
            if cfg!(not(feature = "tls")) {
                return Err(bad("rediss needs leasehold built with its feature 'tls'".to_owned()));
            }
            let path = |value: Option<String>| value.map(PathBuf::from);
            let tls = TlsConfig {
                ca: path(query.take("ca")?),
                cert: path(query.take("cert")?),
                key: path(query.take("key")?),
            };
            if tls.cert.is_some() != tls.key.is_some() {
                return Err(bad("'cert' and 'key' go together".to_owned()));
            }
            StoreConfig::Redis(redis(authority(scheme, body)?, Some(tls))?)
        }
        "unix" | "redis+unix" => {
            let path = file_path(body)?.ok_or_else(|| {
                bad("the URL has no socket path; write unix:///path/to/socket".to_owned())
            })?;
            StoreConfig::Redis(RedisConfig {
                address: Address::Unix(path),
                tls: None,
                user: query.take("user")?,
                password: query.take("password")?.map(Secret::new),
                database: query.take("db")?.map_or(Ok(0), |text| database(&text))?,
            })
        }
        "sqlite" => {
            if cfg!(not(feature = "sqlite")) {
                return Err(bad("sqlite needs leasehold built with its feature 'sqlite'; for Redis give a URL such as redis://127.0.0.1".to_owned()));
            }
            StoreConfig::Sqlite(file_path(body)?.map_or_else(embedded_path, Ok)?)
        }
        // The scheme may be all of a password somebody pasted; it is not repeated either.
        _ => {
            return Err(bad(
                "the URL's scheme is unknown; there are redis, rediss, unix and sqlite, as in \
                 redis://127.0.0.1:6379"
                    .to_owned(),
            ));
        }
    };
    let mut config = Config::new(store);
    if let Some(prefix) = query.take_bytes("prefix") {
        config.prefix = prefix;
    }
    let named = |key: &str, error: Error| bad(format!("{key}: {}", error.detail()));
    for (key, field) in [
        ("io_timeout", &mut config.io_timeout),
        ("close_timeout", &mut config.close_timeout),
        ("claim_window", &mut config.claim_window),
        ("turns_within", &mut config.turns_within),
    ] {
        if let Some(text) = query.take(key)? {
            *field = parse_duration(&text).map_err(|error| named(key, error))?;
        }
    }
    for (key, field) in [("pool", &mut config.pool), ("turns", &mut config.turns)] {
        if let Some(text) = query.take(key)? {
            *field = text.parse().map_err(|_| bad(format!("{key}: it is a whole number")))?;
        }
    }
    query.finish(scheme)?;
    config.check()?;
    Ok(config)
}

fn authority<'a>(scheme: &str, body: &'a str) -> Result<&'a str, Error> {
    body.strip_prefix("//").ok_or_else(|| bad(format!("after '{scheme}:' comes '//' and a host")))
}

/// `[user[:password]@]host[:port][/database]`
fn redis(text: &str, tls: Option<TlsConfig>) -> Result<RedisConfig, Error> {
    let (text, path) = text.split_once('/').unwrap_or((text, ""));
    let (credentials, place) = match text.rsplit_once('@') {
        Some((credentials, place)) => (Some(credentials), place),
        None => (None, text),
    };
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest
                .split_once(']')
                .ok_or_else(|| bad("the URL's IPv6 address has no closing ']'".to_owned()))?;
            let port =
                match after {
                    "" => None,
                    _ => Some(after.strip_prefix(':').ok_or_else(|| {
                        bad("after an IPv6 address comes ':' and a port".to_owned())
                    })?),
                };
            (host, port)
        }
        None => match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    if host.is_empty() {
        return Err(bad(
            "the URL has no host; write for example redis://127.0.0.1, and a '/' in a password \
             as %2F"
                .to_owned(),
        ));
    }
    if host.contains([',', ' ', '\0']) {
        return Err(bad("the URL's host has a character that no host has".to_owned()));
    }
    let port = match port {
        None => REDIS_PORT,
        Some(port) => port
            .parse()
            .ok()
            .filter(|port| *port != 0)
            .ok_or_else(|| bad("the URL's port goes from 1 to 65535".to_owned()))?,
    };
    let (user, password) = match credentials {
        None => (None, None),
        Some(credentials) => {
            let (user, password) = match credentials.split_once(':') {
                Some((user, password)) => (user, Some(Secret::new(decode("password", password)?))),
                None => (credentials, None),
            };
            let user = Some(decode("user", user)?).filter(|user| !user.is_empty());
            if user.is_some() && password.is_none() {
                return Err(bad("the URL names a user and no password".to_owned()));
            }
            (user, password)
        }
    };
    Ok(RedisConfig {
        address: Address::Tcp { host: decode("host", host)?, port },
        tls,
        user,
        password,
        database: if path.is_empty() { 0 } else { database(path)? },
    })
}

fn database(text: &str) -> Result<u32, Error> {
    text.parse().map_err(|_| bad("the database is a whole number from 0, as in /2".to_owned()))
}

/// `///path`, `/path` or `path`; nothing at all is `None`.
fn file_path(body: &str) -> Result<Option<PathBuf>, Error> {
    use std::os::unix::ffi::OsStringExt;

    let path = match body.strip_prefix("//") {
        Some(path) if path.starts_with('/') => path,
        Some("") | None => body,
        Some(_) => {
            return Err(bad(
                "a path after '//' begins with another '/', as in sqlite:///var/lib/locks.db"
                    .into(),
            ));
        }
    };
    let path: Vec<u8> = percent_decode_str(path).collect();
    if path.contains(&0) {
        return Err(bad("a path cannot hold a NUL".to_owned()));
    }
    if path.is_empty() || path == b"//" {
        return Ok(None);
    }
    Ok(Some(PathBuf::from(std::ffi::OsString::from_vec(path))))
}

fn decode(what: &str, text: &str) -> Result<String, Error> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(|text| text.into_owned()).map_err(|_| bad(format!("the URL's {what} is not UTF-8")))
}

/// The parameters, each to be taken once; what is left at the end was not known.
struct Query(Vec<(String, Vec<u8>)>);

impl Query {
    fn read(text: &str) -> Result<Query, Error> {
        let mut pairs: Vec<(String, Vec<u8>)> = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').ok_or_else(|| {
                bad("the URL has a parameter without '='; write it as key=value".to_owned())
            })?;
            if pairs.iter().any(|(known, _)| known == key) {
                return Err(bad(format!("the URL gives '{key}' twice")));
            }
            pairs.push((key.to_owned(), percent_decode_str(value).collect()));
        }
        Ok(Query(pairs))
    }

    fn take_bytes(&mut self, key: &str) -> Option<Vec<u8>> {
        let index = self.0.iter().position(|(known, _)| known == key)?;
        Some(self.0.swap_remove(index).1)
    }

    fn take(&mut self, key: &str) -> Result<Option<String>, Error> {
        let text = self.take_bytes(key).map(String::from_utf8).transpose();
        text.map_err(|_| bad(format!("{key}: it is not UTF-8")))
    }

    fn finish(self, scheme: &str) -> Result<(), Error> {
        match self.0.first() {
            None => Ok(()),
            Some((key, _)) => Err(Error::new(
                ErrorKind::BadArgument,
                format!(
                    "the URL's key '{key}' is not known for {scheme}; known are io_timeout, pool, \
                     close_timeout, prefix{}",
                    match scheme {
                        "rediss" => ", ca, cert and key",
                        "unix" | "redis+unix" => ", user, password and db",
                        _ => "",
                    }
                ),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn redis_of(url: &str) -> RedisConfig {
        match Config::from_url(url).unwrap().store {
            StoreConfig::Redis(redis) => redis,
            StoreConfig::Sqlite(path) => panic!("{}", path.display()),
        }
    }

    #[test]
    fn a_redis_url_says_all_of_it() {
        let read = redis_of("redis://us%3aer:p%40ss@db.example:7000/5");
        assert_eq!(read.address, Address::Tcp { host: "db.example".to_owned(), port: 7000 });
        assert_eq!(read.user.as_deref(), Some("us:er"));
        assert_eq!(read.password.as_ref().map(Secret::expose), Some("p@ss"));
        assert_eq!(read.database, 5);
        let short = redis_of("redis://:secret@[::1]");
        assert_eq!(short.address, Address::Tcp { host: "::1".to_owned(), port: 6379 });
        assert_eq!((short.user, short.database), (None, 0));
        let unix = redis_of("unix:///run/redis.sock?db=3&password=x");
        assert_eq!(unix.address, Address::Unix("/run/redis.sock".into()));
        assert_eq!(unix.database, 3);
    }

    #[test]
    fn parameters_set_timeouts_and_pool() {
        let config = Config::from_url("redis://h?io_timeout=250ms&pool=3&prefix=a%00b").unwrap();
        assert_eq!(config.io_timeout, Duration::from_millis(250));
        assert_eq!(config.pool, 3);
        assert_eq!(config.prefix, b"a\0b");
    }

    #[test]
    fn a_wrong_url_is_refused_with_its_reason() {
        for (url, reason) in [
            ("localhost", "no scheme"),
            ("http://localhost", "scheme is unknown"),
            ("redis:localhost", "'//'"),
            ("redis://", "no host"),
            ("redis://h:0", "port"),
            ("redis://h:99999", "port"),
            ("redis://h/x", "database"),
            ("redis://h?pool=0", "pool is 0"),
            ("redis://h?pool=1&pool=2", "twice"),
            ("redis://h?io_timeout=5", "io_timeout"),
            ("redis://h?colour=red", "'colour' is not known"),
            ("redis://h?ca=x", "'ca' is not known"),
            ("redis://user@h", "no password"),
            ("redis://[::1", "']'"),
            ("redis://a,b", "host has a character"),
            ("unix:", "no socket path"),
            ("unix://relative/path", "another '/'"),
            ("redis://h?pool", "without '='"),
        ] {
            let error = Config::from_url(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadArgument, "{url}");
            assert!(error.to_string().contains(reason), "{url}: {error}");
        }
    }

    #[test]
    fn c12_no_error_of_a_url_repeats_its_password() {
        for url in [
            "redis://:hunter2@h:0",
            "redis://:hunter2@h/x",
            "redis://:hunter2@h?wrong=1",
            "hunter2://h",
            "unix:///s?password=hunter2&x=1",
        ] {
            let error = Config::from_url(url).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{url}: {error}");
        }
    }
}
