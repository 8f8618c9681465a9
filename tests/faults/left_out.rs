//! The list of what a store cannot do, beside what there is to run: it names nothing that is not there,
//! and no test of one store alone is missing in it.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use crate::stores::cannot::{CANNOT, Why};

const SERVERS: &[&str] = &["redis", "postgres", "mysql", "zookeeper", "etcd"];
const KINDS: &[&str] = &["redis", "file", "memory", "postgres", "mysql", "zookeeper", "etcd"];
const SHARED: &[&str] = &["redis", "file", "postgres", "mysql", "zookeeper", "etcd", "quorum"];
const ALL: &[&str] =
    &["redis", "file", "memory", "postgres", "mysql", "zookeeper", "etcd", "quorum"];

/// What makes a test for each of some stores, and for which.
const MACROS: [(&str, &[&str]); 8] = [
    ("on_each_store", ALL),
    ("in_time_on_each_store", ALL),
    ("on_each_deployment", ALL),
    ("on_each_shared_store", SHARED),
    ("on_each_shared_deployment", SHARED),
    ("on_each_queue", KINDS),
    ("on_each_server", SERVERS),
    ("on_each_own_server", SERVERS),
];

const FOLDERS: [&str; 3] = ["faults", "locking", "queue"];

/// Where a test of one store alone needs a reason. What the other files of tests/locking have of them
/// looks at one store's own files and rights.
const WATCHED: [&str; 8] = [
    "tests/queue/",
    "tests/faults/",
    "tests/locking/exclusion",
    "tests/locking/fences",
    "tests/locking/keeper",
    "tests/locking/letting_go",
    "tests/locking/vanishing",
    "tests/locking/waiting",
];

/// What there is to run: on which stores each promise is tried, and what is written for one store.
#[derive(Default)]
struct Found {
    on_each: BTreeMap<String, &'static [&'static str]>,
    /// Names, and the files that they are in.
    alone: BTreeMap<String, String>,
}

impl Found {
    fn read() -> Found {
        let mut found = Found::default();
        let mut folders = FOLDERS.map(|folder| PathBuf::from(format!("tests/{folder}"))).to_vec();
        while let Some(folder) = folders.pop() {
            for file in fs::read_dir(folder).unwrap() {
                let path = file.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    found.read_file(path.to_str().unwrap(), &fs::read_to_string(&path).unwrap());
                }
            }
        }
        let table = fs::read_to_string("tests/languages/table.toml").unwrap();
        let names =
            table.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
        for name in names {
            let words = name.split(|letter: char| !letter.is_ascii_alphanumeric());
            let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
            let name = words.join("_").to_lowercase();
            found.on_each.insert(format!("rust::{name}"), KINDS);
            found.on_each.insert(name, KINDS);
        }
        found
    }

    fn read_file(&mut self, path: &str, text: &str) {
        let mut lines = text.lines().map(str::trim).peekable();
        while let Some(line) = lines.next() {
            if line == "#[test]" {
                // Other attributes may stand between.
                let name = lines.by_ref().find_map(|line| line.strip_prefix("fn ")).unwrap();
                let name = name.split_once('(').unwrap().0;
                // Not a macro's, nor what the tests start.
                if !name.starts_with('$') && !name.starts_with("child_") {
                    self.alone.insert(name.to_owned(), path.to_owned());
                }
            }
            let Some((name, first)) = line.split_once("!(").or(line.split_once("! {")) else {
                continue;
            };
            let Some((_, on)) = MACROS.iter().find(|(known, _)| *known == name) else { continue };
            let mut all = first.to_owned();
            while !all.contains([')', '}']) {
                all.push_str(lines.next().unwrap());
            }
            let promises =
                all.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
            for promise in promises.filter(|promise| !promise.is_empty()) {
                self.on_each.insert(promise.to_owned(), on);
            }
        }
    }
}

#[test]
fn what_is_left_out_is_there_to_run() {
    let found = Found::read();
    assert!(found.on_each.len() > 150 && found.alone.len() > 100, "they are found");
    for cannot in CANNOT {
        assert!(cannot.on.iter().all(|kind| ALL.contains(kind)), "{:?}", cannot.on);
        for test in cannot.tests {
            let is_one_stores = |(name, file): (&String, &String)| name == test || file == test;
            if found.alone.iter().any(is_one_stores) {
                assert_eq!(cannot.on.len(), KINDS.len() - 1, "{test} is for one of the stores");
            } else if let Some((_, on)) = MACROS.iter().find(|(name, _)| name == test) {
                assert!(cannot.on.iter().all(|kind| !on.contains(kind)), "{test} plays there");
            } else {
                let on = found.on_each.get(*test).unwrap_or_else(|| panic!("there is no {test}"));
                assert!(cannot.on.iter().all(|kind| on.contains(kind)), "{test} is not for all");
                assert!(on.iter().any(|kind| !cannot.on.contains(kind)), "{test} plays nowhere");
            }
        }
    }
}

#[test]
fn a_test_of_one_store_alone_is_told_with_its_reason() {
    let told: Vec<&str> = CANNOT.iter().flat_map(|cannot| cannot.tests).copied().collect();
    let missing: Vec<_> = Found::read()
        .alone
        .into_iter()
        .filter(|(name, file)| {
            let is_watched = WATCHED.iter().any(|begin| file.starts_with(begin));
            is_watched && !told.contains(&name.as_str()) && !told.contains(&file.as_str())
        })
        .filter(|(_, file)| file != "tests/faults/left_out.rs")
        .collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn what_a_store_cannot_do_is_told_in_the_documentation() {
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let docs = plain(include_str!("../../docs/explained/promises.md"));
    for cannot in CANNOT {
        if let Why::CannotBe(why) = cannot.why {
            assert!(docs.contains(why), "{why}");
        }
    }
}
