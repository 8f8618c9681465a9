//! One table for all languages: `table.toml` says what Leasehold does, and each language's driver
//! does all of it against one server. Then all of them contend for the same locks.
//!
//! Rust and the shell are always there. `KIT_DRIVERS="c=/path/to/driver python=..."` names
//! programs for others; `tests/run` builds them against what is installed. An argument that is no
//! option runs only the tests whose name contains it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[cfg(feature = "capi")]
mod abi;
mod contend;
mod driver;
mod play;
#[path = "drivers/rust.rs"]
mod rust;
mod table;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use driver::Language;
use kit::Server;

/// Plays mostly wait; more of them at once would measure the machine.
const AT_ONCE: usize = 3;

struct Test<'a> {
    name: String,
    run: Box<dyn Fn() + Send + Sync + 'a>,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|argument| argument == driver::RUST) {
        rust::main();
        return ExitCode::SUCCESS;
    }
    let behaviours = table::read();
    let languages = Language::all();
    let server = Server::start();
    let mut tests = Vec::new();
    for language in &languages {
        for behaviour in behaviours.iter().filter(|behaviour| behaviour.is_for(&language.name)) {
            let server = &server;
            tests.push(Test {
                name: format!("{}: {}", language.name, behaviour.name),
                run: Box::new(move || play::play(behaviour, language, server)),
            });
        }
    }
    tests.push(Test {
        name: "all languages contend for the same locks".to_owned(),
        run: Box::new(|| contend::contend(&languages, &server)),
    });
    tests.push(Test {
        name: "the resource notices intruders".to_owned(),
        run: Box::new(contend::resource_notices_intruders),
    });
    #[cfg(feature = "capi")]
    tests
        .extend(abi::TESTS.map(|(name, test)| Test { name: name.to_owned(), run: Box::new(test) }));
    let wanted = arguments.iter().find(|argument| !argument.starts_with('-'));
    tests.retain(|test| wanted.is_none_or(|wanted| test.name.contains(wanted.as_str())));
    if run(&tests) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Says what became of each test in the words of Rust's own harness.
fn run(tests: &[Test<'_>]) -> bool {
    println!("\nrunning {} tests", tests.len());
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(test) = tests.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let passed = catch_unwind(AssertUnwindSafe(|| (test.run)())).is_ok();
                    println!("test {} ... {}", test.name, if passed { "ok" } else { "FAILED" });
                    if !passed {
                        failed.lock().unwrap().push(test.name.clone());
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    let verdict = if failed.is_empty() { "ok" } else { "FAILED" };
    for name in &failed {
        println!("failed: {name}");
    }
    let passed = tests.len() - failed.len();
    println!("\ntest result: {verdict}. {passed} passed; {} failed; 0 ignored", failed.len());
    failed.is_empty()
}
