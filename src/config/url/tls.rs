//! What a URL says of TLS.

use std::path::PathBuf;

use super::{Parts, text};
#[cfg(any(feature = "mysql", feature = "postgres"))]
use crate::config::Trust;
use crate::config::tls::check_built;
use crate::config::{TlsConfig, TlsWords, bad};
use crate::error::Error;

/// TLS that is on or off. Where it is off its parameters are left over, and so refused.
pub(super) fn by_switch(
    parts: &mut Parts<'_>,
    is_on: bool,
    words: &'static TlsWords,
) -> Result<Option<TlsConfig>, Error> {
    if !is_on {
        return Ok(None);
    }
    check_built(&format!("{} over TLS", parts.scheme))?;
    files(parts, words).map(Some)
}

/// The values of a parameter by which a database's own clients say how much TLS they want.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(super) struct Modes {
    pub(super) key: &'static str,
    pub(super) off: &'static str,
    pub(super) on: [(&'static str, Trust); 3],
    /// Those that encrypt only where the server wants to.
    pub(super) by_chance: &'static [&'static str],
}

#[cfg(any(feature = "mysql", feature = "postgres"))]
impl Modes {
    /// What to do with the files that [`files`] has read.
    pub(super) fn read(&self, mode: &str, files: TlsConfig) -> Result<Option<TlsConfig>, Error> {
        let Modes { key, off, on: [(one, _), (two, _), (best, _)], by_chance } = self;
        if mode == *off {
            if files.ca.is_some() || files.cert.is_some() {
                return Err(bad(format!("certificates are for TLS: {}", files.words.on)));
            }
            return Ok(None);
        }
        if by_chance.contains(&mode) {
            return Err(bad(format!(
                "{key}: who can disturb the connection chooses whether it is encrypted; write \
                 {best}, or {off}"
            )));
        }
        let Some((_, trust)) = self.on.into_iter().find(|(known, _)| *known == mode) else {
            return Err(bad(format!("{key}: it is {off}, {one}, {two} or {best}")));
        };
        check_built(&format!("{key}: TLS"))?;
        Ok(Some(TlsConfig { trust, ..files }))
    }
}

/// The files that are named, for the strictest check of certificates.
pub(super) fn files(parts: &mut Parts<'_>, words: &'static TlsWords) -> Result<TlsConfig, Error> {
    let mut file = |key| parts.take(key, |value| text(value).map(PathBuf::from));
    let (ca, cert, key) = (file(words.ca)?, file(words.cert)?, file(words.key)?);
    if cert.is_some() != key.is_some() {
        return Err(bad(format!("'{}' and '{}' go together", words.cert, words.key)));
    }
    Ok(TlsConfig { ca, cert, key, ..TlsConfig::new(words) })
}
