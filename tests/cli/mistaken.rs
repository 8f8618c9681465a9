//! What was not meant so, and is told in one sentence.

use crate::*;

#[test]
fn c13_what_cannot_be_meant_says_what_to_write_instead() {
    let server = Server::start();
    let shows = |url: &'static str| vec!["show", "--store", url, "n"];
    let database = format!("redis://127.0.0.1:{}/99", server.port());
    for (words, code, said) in [
        (shows(""), 64, "the URL is empty"),
        (shows("redis:///host"), 64, "three slashes, and so no host: write two"),
        (shows("jdbc:postgresql://h/d"), 64, "leave 'jdbc:' out, and write postgres://"),
        (shows("memory:orders"), 64, "this command is another one"),
        (shows("http://127.0.0.1:2379"), 64, "an etcd is etcd://host:2379"),
        (shows("redis://127.0.0.1\n"), 64, "the URL ends with a line break"),
        (shows("redis://127.0.0.1 "), 64, "the URL has a space"),
        (shows("unix:/no/such/socket"), 69, "there is no socket /no/such/socket"),
        (
            vec!["break", "--if-fence", "abc", "n"],
            64,
            "a fence is a whole number of up to 16 digits",
        ),
        (
            vec!["break", "--if-fence", "-5", "n"],
            64,
            "a fence is a whole number of up to 16 digits",
        ),
        (vec!["show", "--store", &database, "n"], 64, "the server has no database 99"),
    ] {
        let Output { status, stderr, .. } = leasehold(&server.url(), &words).output().unwrap();
        let stderr = String::from_utf8(stderr).unwrap();
        assert!(stderr.contains(said), "{words:?}: {stderr}");
        assert_eq!(status.code(), Some(code), "{words:?}: {stderr}");
    }
    // A secret that was read from a file ends with its line.
    let url = format!("{}\n", server.url());
    let Output { status, stderr, .. } = leasehold(&url, ["show", "n"]).output().unwrap();
    assert_eq!((status.code(), stderr), (Some(0), vec![]));
}

#[test]
#[cfg(feature = "sqlite")]
fn a_file_without_even_a_folder_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let shown = |path: &str| {
        let url = format!("sqlite:{}/{path}", folder.path().display());
        let Output { status, stdout, stderr } = leasehold(&url, ["show", "n"]).output().unwrap();
        assert_eq!((status.code(), &*stdout), (Some(0), &b"n: free\n"[..]));
        String::from_utf8(stderr).unwrap()
    };
    let slip = shown("slip/locks.db");
    assert!(slip.contains("there is no folder") && slip.contains("correct the path"), "{slip}");
    assert_eq!(shown("locks.db"), "", "the first lock makes it");
}
