//! What is asked of PostgreSQL and MySQL in the same words.

use std::path::Path;

use leasehold::{Client, Error, ErrorKind};

pub(crate) fn client(url: &str) -> Client {
    Client::open(&with(url, "io_timeout=10s")).unwrap()
}

pub(crate) fn with(url: &str, parameter: &str) -> String {
    format!("{url}{}{parameter}", if url.contains('?') { '&' } else { '?' })
}

pub(crate) fn refused(url: &str) -> Error {
    client(url).lock("n").try_acquire().map(drop).unwrap_err()
}

/// Of a database without tables: `is_bare` says whether it has none still, and `make` makes them as
/// somebody else does.
pub(crate) fn is_told_what_to_run(url: &str, is_bare: impl Fn() -> bool, make: impl Fn(&str)) {
    let client = client(url);
    for error in [
        client.lock("n").try_acquire().map(drop).unwrap_err(),
        client.lock("n").acquire().map(drop).unwrap_err(),
        client.ping().unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Storage, "{error}");
        assert!(error.detail().contains("leasehold init --store URL --apply"), "{error}");
    }
    assert!(is_bare());
    // And twice.
    make(client.schema().unwrap().unwrap());
    let lease = client.lock("n").try_acquire().unwrap().unwrap();
    client.initialize(false).unwrap();
    lease.extend().unwrap();
    lease.release().unwrap();
    assert_eq!(client.initialize(true).unwrap_err().kind(), ErrorKind::BadArgument);
}

pub(crate) fn is_left_alone_with_version_2(url: &str) {
    let error = refused(url);
    assert_eq!(error.kind(), ErrorKind::Storage);
    assert!(error.detail().contains("have version 2, and this program knows 1"), "{error}");
}

/// The statements of the documentation, from the part that begins with this.
pub(crate) fn grants(part: &str) -> Vec<String> {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operating.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let ours = guide.split("\n## ").find(|found| found.starts_with(part)).unwrap();
    ours.lines().filter(|line| line.starts_with("GRANT ")).map(str::to_owned).collect()
}
