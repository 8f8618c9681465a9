//! URLs of a file.

use std::time::Duration;

use super::refused;
use crate::config::Config;

#[test]
fn a_file_has_nothing_of_a_servers() {
    let config = Config::from_url("sqlite:file?max_ttl=1m&guard_data_loss=no").unwrap();
    assert_eq!(config.longest_ttl(), Duration::from_secs(60));
    refused("sqlite:file?replicas=1", "'replicas' is not known for sqlite");
    refused("sqlite:file?guard_data_loss=yes", "an SQLite file loses nothing");
    refused("sqlite:file?fence_life=4h", "a file keep theirs for 25 h");
}

#[test]
fn a_file_is_a_path_that_several_can_open() {
    for url in ["sqlite::memory:", "sqlite://:memory:", "sqlite:///:memory:"] {
        refused(
            url,
            "SQLite's own store in memory would be this client's alone; write sqlite:/path",
        );
    }
    refused("sqlite:file:locks.db?mode=memory", "write sqlite:/path/to/file");
    refused("sqlite://", "the URL has no path");
    refused("sqlite:/p/a.db\n", "the URL ends with a line break");
    for url in ["sqlite:/p/a.db ", "sqlite: /p/a.db", "sqlite:/p/\ta.db"] {
        refused(url, "the URL has a space, a line break");
    }
    let shown = |url| Config::from_url(url).unwrap().display_store();
    assert_eq!(shown("sqlite:/p/a b.db"), shown("sqlite:/p/a%20b.db"));
    refused("sqlite:?mode=0666", "a file of each user's own");
    for mode in ["0644", "rw", "", "1b6", "0777"] {
        refused(&format!("sqlite:file?mode={mode}"), "mode: it is 0600 (this user), 0660");
    }
    for url in ["file?mode=0600", "file?mode=660", "file?mode=0666", "?mode=0600"] {
        assert!(Config::from_url(&format!("sqlite:{url}")).is_ok());
    }
}
