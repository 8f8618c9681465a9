//! One attack on one store: clients in all languages acquire the same sixteen locks while they and their
//! server are killed, stopped and cut off. What each lease said of itself is judged, and so is what
//! happened to the resource that the locks guard. `tests/proof/run` builds what this needs, runs it, and
//! says what came of it.

// Shared with `tests/judge`, which uses all of them.
#[allow(dead_code, unreachable_pub)]
#[path = "../judge/journal.rs"]
mod journal;
mod party;
mod resource;
mod store;
mod tally;
mod trouble;
#[allow(dead_code, unreachable_pub)]
#[path = "../judge/verdict.rs"]
mod verdict;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kit::history::now;
use kit::wait::Metronome;
use kit::{Dice, Proxy, Wrong};

use crate::driver::Language;
use party::{Party, Seat};
use resource::Resource;
use store::Target;
use tally::Tally;
use trouble::{Deck, Kind};
use verdict::{Span, Verdict};

/// How this test program is told to attack a store.
pub(crate) const PROOF: &str = "--proof";

/// As drivers are told them. `<long>` stands for as many bytes as are left of 64 KiB.
const NAMES: [&str; 16] = [
    "stock:17",
    "Stock:17",
    "stock:17%20",
    "stock:17%20%20",
    "a%7Db%7Bc",
    "%7Ba%7Db",
    "a%7B%7Db",
    "nul",
    "nul%00",
    "nul%00%00",
    "%FF%FE",
    "%C3%BC%E5%90%8D",
    "..%2F..%2Fstock",
    "'%3B%20--",
    "<long>n",
    "<long>m",
];
const LONGEST: usize = 64 * 1024;

/// Those that no argument of a program can have, or no line of a shell reads in time.
fn is_for_a_shell(name: usize) -> bool {
    !NAMES[name].contains("%00") && !NAMES[name].contains("%FF") && !NAMES[name].contains('<')
}

fn encoded(name: usize) -> String {
    NAMES[name].replace("<long>", &"n".repeat(LONGEST - 1))
}

/// How many processes of each language there are, beside a steady one in Rust.
const CREW: [(&str, usize); 6] =
    [("rust", 3), ("c", 2), ("cpp", 2), ("java", 1), ("python", 2), ("shell", 1)];

/// How many processes of another library there are, which is attacked as a control.
const OTHERS: usize = 6;
/// Nobody holds a lock that nobody acquired for so long: no ttl is longer than two seconds.
const STUCK: Duration = Duration::from_secs(6);

/// Longer than most waits.
const PATIENCE: Duration = Duration::from_secs(3);

struct Options {
    store: String,
    seconds: u64,
    seed: u64,
    folder: PathBuf,
    stranger: PathBuf,
    /// The driver of another library: then the run is over when its mistake is seen.
    control: Option<String>,
    /// Whether that mistake is a lock that nobody acquires any more. Otherwise it is two holders.
    is_for_ever: bool,
}

impl Options {
    fn read(arguments: &[String]) -> Options {
        let find = |name: &str| {
            let at = arguments.iter().position(|argument| argument == name);
            at.and_then(|at| arguments.get(at + 1))
        };
        let of = |name: &str| find(name).unwrap_or_else(|| panic!("{name} is missing"));
        let number = |name: &str| of(name).parse().unwrap_or_else(|_| panic!("{name}: no number"));
        Options {
            store: of("--store").clone(),
            seconds: number("--seconds"),
            seed: number("--seed"),
            folder: of("--folder").into(),
            stranger: of("--stranger").into(),
            control: find("--control").cloned(),
            is_for_ever: find("--mistake").is_some_and(|what| what == "for-ever"),
        }
    }
}

/// Some processes of each language. The first language has a steady one, too.
fn crew(languages: &[Language]) -> Vec<&Language> {
    let count = |language: &Language| {
        let known = CREW.iter().find(|(name, _)| *name == language.name);
        known.map_or(OTHERS, |(_, count)| *count)
    };
    languages.iter().flat_map(|language| std::iter::repeat_n(language, count(language))).collect()
}

/// What everybody who takes part sees.
struct Scene<'a> {
    seats: Vec<Seat>,
    resource: Resource,
    over: AtomicBool,
    folder: &'a Path,
    /// The largest fence that the resource has seen of each name.
    latest: [AtomicU64; NAMES.len()],
    tally: Tally,
    /// When the store was not to be had.
    away: Mutex<Vec<Span>>,
    /// Mistakes of others are looked for: locks are held for long, and clients stand still for long.
    is_control: bool,
}

impl Scene<'_> {
    /// Whether what is wrong with a control is seen by now.
    fn is_caught(&self, is_for_ever: bool) -> bool {
        if is_for_ever {
            return self.tally.is_stuck(STUCK);
        }
        // While they write, one may be read as a holder who has released before the next one was read.
        let before = self.overlaps();
        if before.is_empty() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(200));
        self.overlaps().iter().any(|pair| before.contains(pair))
    }

    /// The fences of those who hold one lock at one time.
    fn overlaps(&self) -> Vec<[u64; 2]> {
        let verdict = Verdict::of(self.folder, now(), None, &[]);
        let pair = |wrong: &Wrong| match wrong {
            Wrong::Overlap(one, two) => Some([one.fence, two.fence]),
            _ => None,
        };
        verdict.wrong.iter().filter_map(pair).collect()
    }

    /// All have some time for what they are doing.
    fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
        let end = Instant::now() + PATIENCE;
        while self.seats.iter().any(Seat::has_begun) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.seats.iter().for_each(Seat::kill);
    }
}

/// The clients are told that it is over, also where this thread panics.
struct End<'a>(&'a Scene<'a>);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// What happens, how often, until the time is over or a control is caught.
fn strike(
    options: &Options,
    scene: &Scene<'_>,
    target: &mut Target,
    links: &mut [Proxy],
    dice: &mut Dice,
) -> BTreeMap<Kind, u64> {
    let end = Instant::now() + Duration::from_secs(options.seconds);
    // Nothing happens to those who have not begun.
    while !scene.seats.iter().all(Seat::has_begun) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    let (mut deck, begun, mut faults) = (Deck::new(dice), Instant::now(), BTreeMap::new());
    while Instant::now() < end {
        std::thread::sleep(deck.pause());
        *faults.entry(deck.strike(scene, target, links)).or_default() += 1;
        if scene.is_control && scene.is_caught(options.is_for_ever) {
            println!("@@ caught_after_ms {}", begun.elapsed().as_millis());
            break;
        }
    }
    links.iter_mut().for_each(Proxy::deliver);
    faults
}

pub(crate) fn main(arguments: &[String]) -> ExitCode {
    let options = Options::read(arguments);
    let languages = match &options.control {
        Some(program) => vec![Language::new("control", program)],
        None => Language::all(),
    };
    let (mut target, mut dice) = (store::start(&options.store), Dice::new(options.seed));
    let crew = crew(&languages);
    let mut links = target.links(crew.len());
    let urls = (0..crew.len()).map(|place| target.url(links.get(place)));
    // The first one is steady.
    let urls: Vec<String> = std::iter::once(target.steady_url()).chain(urls).collect();
    let scene = Scene {
        seats: urls.iter().map(|_| Seat::default()).collect(),
        resource: Resource::start(&options.stranger),
        over: AtomicBool::new(false),
        folder: &options.folder,
        latest: [const { AtomicU64::new(0) }; NAMES.len()],
        tally: Tally::default(),
        away: Mutex::default(),
        is_control: options.control.is_some(),
    };
    fs::create_dir_all(scene.folder.join(party::UNWORDED)).unwrap();
    let metronome = Metronome::start();
    let faults = std::thread::scope(|threads| {
        let (scene, _end) = (&scene, End(&scene));
        let crew = std::iter::once(&languages[0]).chain(crew);
        for (place, (language, url)) in crew.zip(urls).enumerate() {
            let dice = dice.split();
            threads.spawn(move || Party::new(scene, language, place, url, dice).play());
        }
        strike(&options, scene, &mut target, &mut links, &mut dice)
    });
    let (stall, over) = (metronome.longest_gap(), now());
    tally::Figures { scene: &scene, faults: &faults, over, stall }.say()
}
