//! The keys of URLs and the pages that list them: what is read is written down, and the other way round.

use std::collections::BTreeSet;

use crate::config::Config;
use crate::config::url::scheme::SCHEMES;

/// Each scheme with a URL that may have all of its keys, and the parts of docs/reference/urls.md that list
/// them.
const DOCUMENTED: [(&str, &str, &[&str]); SCHEMES.len()] = [
    ("redis", "redis://h?", &[OF_SERVERS, "Redis and Valkey"]),
    ("rediss", "rediss://h?", &[OF_SERVERS, "Redis and Valkey"]),
    ("unix", "unix:/s?", &[OF_SERVERS, "Redis and Valkey"]),
    ("redis+unix", "redis+unix:/s?", &[OF_SERVERS, "Redis and Valkey"]),
    ("redis+sentinel", "redis+sentinel://h/m?", &[OF_SERVERS, "Sentinel"]),
    ("rediss+sentinel", "rediss+sentinel://h/m?", &[OF_SERVERS, "Sentinel", "Redis and Valkey"]),
    ("redis+cluster", "redis+cluster://h?", &[OF_SERVERS, "Cluster"]),
    ("rediss+cluster", "rediss+cluster://h?", &[OF_SERVERS, "Cluster", "Redis and Valkey"]),
    ("sqlite", "sqlite:/f?", &["SQLite"]),
    ("memory", "memory:?", &["Memory"]),
    ("postgres", "postgres://u@h?", &[OF_SERVERS, "PostgreSQL"]),
    ("mysql", "mysql://u@h/d?", &[OF_SERVERS, "MySQL and MariaDB"]),
    ("zookeeper", "zookeeper://h?tls=yes&", &[OF_SERVERS, "ZooKeeper", "Redis and Valkey"]),
    ("etcd", "etcd://h?", &[OF_SERVERS, "etcd"]),
    ("etcds", "etcds://h?", &[OF_SERVERS, "etcd", "Redis and Valkey"]),
];
const OF_CLIENTS: &str = "Options of a client";
/// What is logged in to.
const OF_SERVERS: &str = "How a URL is written";

/// The keys of one part of a page, with the part: its smaller headings, and what its lists consist of.
fn listed(page: &str, part: &'static str) -> BTreeSet<(&'static str, String)> {
    let path = format!("{}/docs/reference/{page}", env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(path).unwrap();
    let (_, text) = page.split_once(&format!("\n## {part}\n")).unwrap();
    let text = text.split("\n## ").next().unwrap();
    let keys = |line: &str| {
        let item = || line.strip_prefix("- `")?.strip_suffix('`');
        line.strip_prefix("### ").or_else(item).map(|keys| keys.replace(" and ", ", "))
    };
    let keys: Vec<_> = text.lines().filter_map(keys).collect();
    keys.iter().flat_map(|keys| keys.split(", ")).map(|key| (part, key.to_owned())).collect()
}

/// The keys that a URL may have, as the error for one that it may not have says them.
fn read(url: &str) -> Vec<String> {
    let error = Config::from_url(&format!("{url}0=")).unwrap_err().to_string();
    let (_, known) = error.split_once("known are ").unwrap_or_else(|| panic!("{url}: {error}"));
    known.split(", ").map(str::to_owned).collect()
}

#[test]
fn every_key_that_is_read_is_listed_and_every_key_that_is_listed_is_read() {
    assert_eq!(SCHEMES.map(|scheme| scheme.name), DOCUMENTED.map(|(scheme, ..)| scheme));
    let mut unread = listed("options.md", OF_CLIENTS);
    let mut seen = BTreeSet::new();
    for (scheme, url, parts) in DOCUMENTED {
        let parts = || parts.iter().copied().chain([OF_CLIENTS]);
        unread.extend(
            parts().filter(|part| *part != OF_CLIENTS).flat_map(|it| listed("urls.md", it)),
        );
        for key in read(url) {
            let places: Vec<_> = parts().map(|part| (part, key.clone())).collect();
            assert!(
                places.iter().any(|place| unread.contains(place)),
                "{scheme}: {key} is not listed"
            );
            seen.extend(places);
        }
    }
    let unread: Vec<_> = unread.difference(&seen).collect();
    assert!(unread.is_empty(), "listed, and in no URL: {unread:?}");
}
