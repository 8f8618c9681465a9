//! Whether an examination finds what was planted, and says nothing of servers that are as the pages
//! in docs/operate advise.

#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "sqlite")]
mod file;
mod groups;
#[cfg(feature = "mysql")]
mod mysql;
mod one;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use std::time::Duration;

use leasehold::{Checkup, Client, Config, Examination};

const LIMIT: Duration = Duration::from_secs(60);

/// On a machine that is busy with other things, so that an answer may take a while.
fn open(url: &str) -> Client {
    let patient = Config::from_url(url).unwrap().io_timeout(Duration::from_secs(20));
    Client::with_config(patient).unwrap()
}

fn examine(url: &str) -> Examination {
    open(url).examine(&Checkup::default()).unwrap()
}

/// But for what a machine does to a server that is busy with others: it makes commands take long.
fn ids(found: &Examination) -> Vec<&'static str> {
    let all = found.findings.iter().map(|finding| finding.id);
    all.filter(|id| *id != "redis-stalls").collect()
}

/// Declares a store new whose servers guard against lost data, and examines it.
fn begun(url: &str) -> Examination {
    open(url).initialize(false).unwrap();
    examine(url)
}

#[track_caller]
fn assert_finds(url: &str, id: &str) {
    let found = examine(url);
    assert!(ids(&found).contains(&id), "{id}: {:#?}", found.findings);
}

#[track_caller]
fn assert_healthy(found: &Examination) {
    assert_eq!(ids(found), [""; 0], "{:#?}", found.findings);
}

/// What to type about the finding of this id.
#[track_caller]
fn advice<'a>(found: &'a Examination, id: &str) -> &'a str {
    let finding = found.findings.iter().find(|it| it.id == id);
    &finding.unwrap_or_else(|| panic!("{id}: {:#?}", found.findings)).advice
}
