//! One table for all languages and stores: `table.toml` says what Leasehold does, and each language's
//! driver does all of it on each store. Then all of them contend for the same locks.
//!
//! Rust and the shell are always there. `KIT_DRIVERS="c=/path/to/driver python=..."` names
//! programs for others; `tests/run` builds them against what is installed. An argument that is no
//! option runs only the tests whose name contains it, and with `--exact` the one that has it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[cfg(feature = "capi")]
mod abi;
mod contend;
mod driver;
mod play;
#[cfg(feature = "cli")]
#[path = "../proof/mod.rs"]
mod proof;
#[path = "drivers/rust.rs"]
mod rust;
#[path = "../stores/mod.rs"]
mod stores;
mod table;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use driver::Language;
use stores::{KINDS, Store, cannot};
use table::Behaviour;

/// Plays mostly wait; many more of them at once would measure the machine.
const AT_ONCE: usize = 6;

struct Test<'a> {
    name: String,
    act: Act<'a>,
}

enum Act<'a> {
    Run(Box<dyn Fn() + Send + Sync + 'a>),
    /// It cannot be, and why.
    LeaveOut(String),
}

/// Which is there once it is needed.
struct Shared {
    kind: &'static str,
    fresh: fn() -> Store,
    store: OnceLock<Store>,
}

impl Shared {
    fn store(&self) -> &Store {
        self.store.get_or_init(self.fresh)
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|argument| argument == driver::RUST) {
        rust::main();
        return ExitCode::SUCCESS;
    }
    #[cfg(feature = "cli")]
    if arguments.first().is_some_and(|argument| argument == proof::PROOF) {
        return proof::main(&arguments[1..]);
    }
    let behaviours = table::read();
    let languages = Language::all();
    let share = |(kind, fresh)| Shared { kind, fresh, store: OnceLock::new() };
    let shared: Vec<Shared> = KINDS.iter().copied().map(share).collect();
    let mut tests = Vec::new();
    for language in &languages {
        for behaviour in &behaviours {
            tests.extend(plays(behaviour, language, &shared));
        }
    }
    tests.extend(shared.iter().filter(|on| on.kind != "memory").map(|on| Test {
        name: format!("contend::on_{}::all_languages_for_the_same_locks", on.kind),
        act: Act::Run(Box::new(|| contend::contend(&languages, on.store()))),
    }));
    let plain =
        [("contend::the_resource_notices_intruders", contend::resource_notices_intruders as fn())];
    let plain = plain.into_iter();
    #[cfg(feature = "capi")]
    let plain = plain.chain(abi::TESTS);
    tests.extend(
        plain.map(|(name, test)| Test { name: name.to_owned(), act: Act::Run(Box::new(test)) }),
    );
    select(&mut tests, &arguments);
    let lists = arguments.iter().any(|argument| argument == "--list");
    let passed = if lists { list(&tests) } else { run(&tests) };
    drop(tests);
    languages.into_iter().for_each(Language::end);
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// One behaviour in one language, on each store.
fn plays<'a>(
    behaviour: &'a Behaviour,
    language: &'a Language,
    shared: &'a [Shared],
) -> Vec<Test<'a>> {
    let test = behaviour.test();
    let in_language = format!("{}::{test}", language.name);
    if let Some(why) = behaviour.why_not_in(&language.name) {
        return vec![Test { name: in_language, act: Act::LeaveOut(why.to_owned()) }];
    }
    let play = |on: &'a Shared| {
        let cannot = cannot::why_not(&test, on.kind).or(cannot::why_not(&in_language, on.kind));
        let is_shared = behaviour.needs_a_shared_store() || language.name == "shell";
        let cannot = cannot.or((on.kind == "memory" && is_shared).then_some(cannot::ONE_PROCESS));
        let act = match cannot {
            Some(why) => Act::LeaveOut(why.to_owned()),
            None => Act::Run(Box::new(|| play::play(behaviour, language, on.store()))),
        };
        Test { name: format!("{}::on_{}::{test}", language.name, on.kind), act }
    };
    shared.iter().map(play).collect()
}

/// As Rust's own harness does it.
fn select(tests: &mut Vec<Test<'_>>, arguments: &[String]) {
    let (options, wanted): (Vec<&String>, Vec<&String>) =
        arguments.iter().partition(|argument| argument.starts_with('-'));
    let is_exact = options.iter().any(|option| *option == "--exact");
    let fits =
        |name: &str, wanted: &str| if is_exact { name == wanted } else { name.contains(wanted) };
    tests.retain(|test| wanted.is_empty() || wanted.iter().any(|wanted| fits(&test.name, wanted)));
}

fn list(tests: &[Test<'_>]) -> bool {
    tests.iter().for_each(|test| println!("{}: test", test.name));
    true
}

/// Says what became of each test in the words of Rust's own harness.
fn run(tests: &[Test<'_>]) -> bool {
    println!("\nrunning {} tests", tests.len());
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(test) = tests.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let Act::Run(act) = &test.act else { continue };
                    let passed = catch_unwind(AssertUnwindSafe(act)).is_ok();
                    println!("test {} ... {}", test.name, if passed { "ok" } else { "FAILED" });
                    if !passed {
                        failed.lock().unwrap().push(&test.name);
                    }
                }
            });
        }
    });
    let mut ignored = 0;
    for test in tests {
        if let Act::LeaveOut(why) = &test.act {
            println!("test {} ... ignored, {why}", test.name);
            ignored += 1;
        }
    }
    let failed = failed.into_inner().unwrap();
    if !failed.is_empty() {
        println!("\nfailures:");
        failed.iter().for_each(|name| println!("    {name}"));
    }
    let verdict = if failed.is_empty() { "ok" } else { "FAILED" };
    let passed = tests.len() - failed.len() - ignored;
    println!(
        "\ntest result: {verdict}. {passed} passed; {} failed; {ignored} ignored",
        failed.len()
    );
    failed.is_empty()
}
