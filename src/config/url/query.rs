//! What follows the '?' of a URL.

use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;

use crate::config::{Config, bad, parse_duration};
use crate::error::Error;

/// What concerns a client as a whole. In a quorum, the last URL has it.
const CLIENT: [&str; 7] =
    ["io_timeout", "pool", "close_timeout", "claim_window", "prefix", "max_ttl", "guard_data_loss"];

/// The parameters, each to be taken once; what is left at the end was not known.
pub(super) struct Query(Vec<(String, Vec<u8>)>);

impl Query {
    pub(super) fn read(text: &str) -> Result<Query, Error> {
        let mut pairs: Vec<(String, Vec<u8>)> = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair
                .split_once('=')
                .ok_or_else(|| bad("the URL has a parameter without '='; write it as key=value"))?;
            if pairs.iter().any(|(known, _)| known == key) {
                return Err(bad(format!("the URL gives '{key}' twice")));
            }
            pairs.push((key.to_owned(), percent_decode_str(value).collect()));
        }
        Ok(Query(pairs))
    }

    fn bytes(&mut self, key: &str) -> Option<Vec<u8>> {
        let index = self.0.iter().position(|(known, _)| known == key)?;
        Some(self.0.swap_remove(index).1)
    }

    pub(super) fn text(&mut self, key: &str) -> Result<Option<String>, Error> {
        let text = self.bytes(key).map(String::from_utf8).transpose();
        text.map_err(|_| bad(format!("{key}: it is not UTF-8")))
    }

    pub(super) fn path(&mut self, key: &str) -> Result<Option<PathBuf>, Error> {
        Ok(self.text(key)?.map(PathBuf::from))
    }

    pub(super) fn count(&mut self, key: &str) -> Result<Option<u32>, Error> {
        let count = self.text(key)?.map(|text| text.parse()).transpose();
        count.map_err(|_| bad(format!("{key}: it is a whole number")))
    }

    fn span(&mut self, key: &str) -> Result<Option<Duration>, Error> {
        let span = self.text(key)?.map(|text| parse_duration(&text)).transpose();
        span.map_err(|error| bad(format!("{key}: {}", error.detail())))
    }

    pub(super) fn switch(&mut self, key: &str) -> Result<Option<bool>, Error> {
        match self.text(key)?.as_deref() {
            None => Ok(None),
            Some("yes") => Ok(Some(true)),
            Some("no") => Ok(Some(false)),
            Some(_) => Err(bad(format!("{key}: it is yes or no"))),
        }
    }

    /// Sets what concerns the client as a whole.
    pub(super) fn settings(&mut self, mut config: Config) -> Result<Config, Error> {
        type Set = fn(Config, Duration) -> Config;
        if let Some(prefix) = self.bytes("prefix") {
            config = config.prefix(prefix);
        }
        let spans: [(&str, Set); 4] = [
            ("io_timeout", Config::io_timeout),
            ("close_timeout", Config::close_timeout),
            ("claim_window", Config::claim_window),
            ("max_ttl", Config::max_ttl),
        ];
        for (key, set) in spans {
            if let Some(span) = self.span(key)? {
                config = set(config, span);
            }
        }
        if let Some(count) = self.count("pool")? {
            config = config.pool(count);
        }
        if let Some(on) = self.switch("guard_data_loss")? {
            config = config.guard_data_loss(on);
        }
        Ok(config)
    }

    /// The first key that was not taken and concerns the client as a whole.
    pub(super) fn setting(&self) -> Option<&'static str> {
        CLIENT.into_iter().find(|setting| self.0.iter().any(|(key, _)| key == setting))
    }

    /// Refuses what was not taken.
    pub(super) fn finish(&self, scheme: &str) -> Result<(), Error> {
        let Some((key, _)) = self.0.first() else { return Ok(()) };
        let known: Vec<_> = CLIENT.iter().chain(own(scheme)).copied().collect();
        Err(bad(format!(
            "the URL's key '{key}' is not known for {scheme}; known are {}",
            known.join(", ")
        )))
    }
}

/// What each store of a scheme has for itself.
fn own(scheme: &str) -> &'static [&'static str] {
    match scheme {
        "redis" | "redis+cluster" => &["replicas"],
        "rediss" | "rediss+cluster" => &["replicas", "ca", "cert", "key"],
        "unix" | "redis+unix" => &["replicas", "user", "password", "db"],
        "redis+sentinel" => &["replicas", "sentinel_user", "sentinel_password", "sentinel_tls"],
        "rediss+sentinel" => {
            &["replicas", "sentinel_user", "sentinel_password", "sentinel_tls", "ca", "cert", "key"]
        }
        _ => &[],
    }
}
