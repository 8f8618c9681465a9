//! URLs of files.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::{Parts, decode, text};
use crate::config::bad;
use crate::config::sqlite::{Sharing, SqliteConfig, embedded_path};
use crate::error::Error;

pub(super) fn read(parts: &mut Parts<'_>) -> Result<SqliteConfig, Error> {
    if matches!(parts.body, ":memory:" | "//:memory:" | "///:memory:") {
        return Err(bad(
            "SQLite's own store in memory would be this client's alone; write sqlite:/path/to/file, or in a \
             test memory:name",
        ));
    }
    if parts.body.starts_with("file:") {
        return Err(bad("SQLite's own URIs are not read; write sqlite:/path/to/file"));
    }
    let path = path(parts.body)?;
    let sharing = parts.take("mode", |value| Sharing::read(&text(value)?))?;
    if path.is_none() && !parts.body.is_empty() {
        return Err(bad(
            "the URL has no path; write sqlite:///path/to/file, or sqlite: for a file of your own",
        ));
    }
    if path.is_none() && sharing.is_some_and(|sharing| sharing != Sharing::User) {
        return Err(bad(
            "sqlite: is a file of each user's own; to share one, write sqlite:/path/to/file",
        ));
    }
    Ok(SqliteConfig { path: path.map_or_else(embedded_path, Ok)?, sharing })
}

/// `///path`, `/path` or `path`; nothing at all is `None`.
pub(super) fn path(body: &str) -> Result<Option<PathBuf>, Error> {
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
    let path = decode("path", path)?;
    if path.contains(&0) {
        return Err(bad("a path cannot hold a NUL"));
    }
    Ok(Some(PathBuf::from(OsString::from_vec(path))).filter(|path| !path.as_os_str().is_empty()))
}
