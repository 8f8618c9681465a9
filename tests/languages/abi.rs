//! The binary interface: that the header says what the sources say, that the list of symbols is
//! the header's, and that each function is documented and called by a test in C.
//!
//! After a change of the interface, `LEASEHOLD_REWRITE=1 cargo test --test languages abi:` writes
//! the header and the list anew.

mod header;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub(crate) const TESTS: [(&str, fn()); 3] = [
    ("abi: the header says what the sources say", the_header_says_what_the_sources_say),
    ("abi: the list of symbols is the header's", the_list_of_symbols_is_the_headers),
    (
        "abi: every function is documented",
        every_function_is_documented_and_says_which_threads_may_call_it,
    ),
];
const REWRITE: &str = "LEASEHOLD_REWRITE";

fn symbols_path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/languages/abi/symbols.txt")
}

fn checked_in(path: &Path, wanted: &str) {
    if std::env::var_os(REWRITE).is_some() {
        std::fs::write(path, wanted).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    let differs = found.lines().zip(wanted.lines()).find(|(found, wanted)| found != wanted);
    assert!(
        found == wanted,
        "{} is not what the sources say: {differs:?}; run this test with {REWRITE}=1",
        path.display()
    );
}

fn functions() -> Vec<header::Item> {
    let header = std::fs::read_to_string(header::path()).unwrap();
    header::items(&header).into_iter().filter(header::Item::is_function).collect()
}

fn the_header_says_what_the_sources_say() {
    checked_in(&header::path(), &header::generate());
}

fn the_list_of_symbols_is_the_headers() {
    let header = header::generate();
    let names: BTreeSet<String> = header::items(&header)
        .into_iter()
        .filter(header::Item::is_function)
        .map(|item| item.name)
        .collect();
    let list: String = names.iter().map(|name| format!("{name}\n")).collect();
    checked_in(&symbols_path(), &list);
}

fn every_function_is_documented_and_says_which_threads_may_call_it() {
    let functions = functions();
    assert!(functions.len() > 50, "{}", functions.len());
    for item in functions {
        // A comment's lines break anywhere.
        let comment = item.comment().replace("\n *", "");
        assert!(comment.len() > 40 && comment.contains("ny thread"), "{}: {comment}", item.name);
    }
}
