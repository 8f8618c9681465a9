//! The binary interface: that the header says what the sources say, that the list of symbols is
//! the header's, and that each function is documented and called by a test in C. `make header`
//! writes the header and the list anew.

use std::collections::BTreeSet;
use std::path::Path;

/// What the build script has made of the sources.
const GENERATED: &str = include_str!(concat!(env!("OUT_DIR"), "/leasehold.h"));

pub(crate) const TESTS: [(&str, fn()); 3] = [
    ("abi::the_header_says_what_the_sources_say", the_header_says_what_the_sources_say),
    ("abi::the_list_of_symbols_is_the_headers", the_list_of_symbols_is_the_headers),
    (
        "abi::every_function_is_documented_and_says_which_threads_may_call_it",
        every_function_is_documented_and_says_which_threads_may_call_it,
    ),
];
const REWRITE: &str = "KIT_REWRITE";

fn checked_in(path: &str, wanted: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os(REWRITE).is_some() {
        std::fs::write(&path, wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = found.lines().zip(wanted.lines()).find(|(found, wanted)| found != wanted);
    assert!(
        found == wanted,
        "{} is not what the sources say: {differs:?}; run `make header`",
        path.display()
    );
}

/// The functions, each with its comment.
fn functions() -> impl Iterator<Item = (&'static str, &'static str)> {
    GENERATED.split("\n\n").filter(|text| text.ends_with(");")).filter_map(|text| {
        let (comment, declaration) = text.rsplit_once("*/\n")?;
        let before = declaration.split_once('(')?.0;
        let is_type = declaration.starts_with("typedef");
        (!is_type).then_some((before.rsplit([' ', '*']).next()?, comment))
    })
}

fn the_header_says_what_the_sources_say() {
    checked_in("include/leasehold.h", GENERATED);
}

fn the_list_of_symbols_is_the_headers() {
    let names: BTreeSet<&str> = functions().map(|(name, _)| name).collect();
    let list: String = names.iter().map(|name| format!("{name}\n")).collect();
    checked_in("tests/languages/abi/symbols.txt", &list);
}

fn every_function_is_documented_and_says_which_threads_may_call_it() {
    assert!(functions().count() > 50, "{}", functions().count());
    for (name, comment) in functions() {
        // A comment's lines break anywhere.
        let comment = comment.replace("\n *", "");
        assert!(comment.len() > 40 && comment.contains("ny thread"), "{name}: {comment}");
    }
}
