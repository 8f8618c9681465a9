//! What is asked of PostgreSQL and MySQL in the same words.

use std::path::Path;

use leasehold::{Client, Error};

pub(crate) fn client(url: &str) -> Client {
    Client::open(&with(url, "io_timeout=10s")).unwrap()
}

pub(crate) fn with(url: &str, parameter: &str) -> String {
    format!("{url}{}{parameter}", if url.contains('?') { '&' } else { '?' })
}

pub(crate) fn refused(url: &str) -> Error {
    client(url).lock("n").try_acquire().map(drop).unwrap_err()
}

/// The statements of the documentation, from the part that begins with this.
pub(crate) fn grants(part: &str) -> Vec<String> {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operating.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let ours = guide.split("\n## ").find(|found| found.starts_with(part)).unwrap();
    ours.lines().filter(|line| line.starts_with("GRANT ")).map(str::to_owned).collect()
}
