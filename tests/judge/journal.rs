//! What each lease said of itself, in files of a file system in memory: what was written there is
//! there when the process that wrote it is killed in the same moment.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use leasehold::Lease;

use kit::history::now;

/// Where an attempt, and the lease that came of it, has got to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// It asks, or has been refused.
    #[default]
    Asks,
    /// Relied on; if its process was killed, for as long as it said.
    Held,
    /// Given up, or seen to be over.
    Over,
    /// The lock stays taken for as long as the word says.
    LeftTaken,
    /// The same, unless another process has gone on with it.
    HandedOn,
}

const STATES: [State; 5] =
    [State::Asks, State::Held, State::Over, State::LeftTaken, State::HandedOn];

/// One attempt, and its lease if it has one. A moment that did not come is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Which lock.
    pub name: usize,
    pub state: State,
    /// Before it asked, and after it was answered.
    pub asked: Duration,
    pub answered: Duration,
    /// A moment at which the lease was valid already, and the last one known.
    pub from: Duration,
    pub until: Duration,
    /// The end of what it promised to be valid for, or to leave the lock taken for.
    pub word: Duration,
    pub fence: u64,
    /// Some digits of it.
    pub token: u64,
}

/// What somebody relies on.
pub trait Relied {
    /// In hexadecimal digits.
    fn token(&self) -> String;
    fn fence(&self) -> u64;
    /// For how long it is valid; zero when it is over.
    fn left(&self) -> Duration;
}

impl Relied for Lease {
    fn token(&self) -> String {
        self.token().to_string()
    }

    fn fence(&self) -> u64 {
        self.fence()
    }

    fn left(&self) -> Duration {
        if self.is_valid() { self.remaining() } else { Duration::ZERO }
    }
}

/// What an entry takes as text; none lies in two pages.
const SIZE: usize = 256;

impl Entry {
    fn to_line(self) -> String {
        let at = [self.asked, self.answered, self.from, self.until, self.word];
        let [asked, answered, from, until, word] = at.map(|at| at.as_nanos());
        let (name, state, fence, token) = (self.name, self.state as usize, self.fence, self.token);
        let line =
            format!("{name} {state} {asked} {answered} {from} {until} {word} {fence} {token}");
        format!("{line:<SIZE$}")
    }

    fn from_line(line: &str) -> Entry {
        let numbers: Vec<u64> = line.split_whitespace().map(|word| word.parse().unwrap()).collect();
        let [name, state, asked, answered, from, until, word, fence, token] = numbers[..] else {
            panic!("{line}")
        };
        let at = [asked, answered, from, until, word].map(Duration::from_nanos);
        let [asked, answered, from, until, word] = at;
        let (name, state) = (name as usize, STATES[state as usize]);
        Entry { name, state, asked, answered, from, until, word, fence, token }
    }
}

/// Of one thread. An entry is written by one call and within a page: a process that is killed has
/// written all of it or nothing.
pub struct Journal {
    file: File,
    at: u64,
    pub entry: Entry,
}

impl Journal {
    pub fn create(dir: &Path, owner: &str) -> Journal {
        let file = File::create_new(dir.join(owner)).unwrap();
        Journal { file, at: 0, entry: Entry::default() }
    }

    fn write(&self) {
        self.file.write_all_at(self.entry.to_line().as_bytes(), self.at).unwrap();
    }

    pub fn asks(&mut self, name: usize) {
        if self.entry != Entry::default() {
            self.at += SIZE as u64;
        }
        self.entry = Entry { name, asked: now(), ..Entry::default() };
        self.write();
    }

    pub fn refused(&mut self) {
        self.entry.answered = now();
        self.write();
    }

    /// It is not valid before a look has found it so.
    pub fn has(&mut self, lease: &impl Relied) {
        self.is_about(&lease.token(), lease.fence());
        (self.entry.answered, self.entry.state) = (now(), State::Held);
        self.write();
    }

    pub fn is_about(&mut self, token: &str, fence: u64) {
        self.entry.token = u64::from_str_radix(&token[..16], 16).unwrap();
        self.entry.fence = fence;
        self.write();
    }

    /// Whether the lease is valid. Another lease is not, from before the moment at which this one
    /// was seen valid first until after the moment at which it was last asked and was.
    pub fn look(&mut self, lease: &impl Relied) -> bool {
        let before = now();
        self.looked(before, lease.left())
    }

    /// The same, of a lease that was asked after this moment and has said how long it is valid.
    pub fn looked(&mut self, before: Duration, left: Duration) -> bool {
        if !left.is_zero() {
            if self.entry.from.is_zero() {
                self.entry.from = now();
            }
            self.entry.until = before.max(self.entry.from);
            self.entry.word = self.entry.word.max(before + left);
        } else {
            self.entry.state = State::Over;
        }
        self.write();
        !left.is_zero()
    }

    /// To be called before the lease is told.
    pub fn ends(&mut self, state: State) {
        self.entry.state = state;
        self.write();
    }

    /// The lock stays taken until then.
    pub fn leaves_taken(&mut self, until: Duration) {
        (self.entry.word, self.entry.state) = (until, State::LeftTaken);
        self.write();
    }
}

/// All that was written in a directory, with the names of the files.
pub fn read(dir: &Path) -> Vec<(String, Entry)> {
    let mut entries = Vec::new();
    for file in fs::read_dir(dir).unwrap().map(|file| file.unwrap()) {
        if file.file_type().unwrap().is_file() {
            let (owner, text) = (file.file_name(), fs::read(file.path()).unwrap());
            let lines = text.chunks_exact(SIZE).map(|line| str::from_utf8(line).unwrap());
            let owner = owner.to_string_lossy();
            entries.extend(lines.map(|line| (owner.clone().into_owned(), Entry::from_line(line))));
        }
    }
    entries
}

/// The guarded resource: it takes writes one after the other, each with its fence and with a moment
/// before it, and refuses, when it is judged, those that come with a smaller fence than one before.
pub struct Cell(File);

impl Cell {
    pub fn open(dir: &Path, name: usize) -> Cell {
        fs::create_dir_all(dir.join("cells")).unwrap();
        let path = dir.join("cells").join(name.to_string());
        Cell(File::options().create(true).append(true).open(path).unwrap())
    }

    pub fn write(&mut self, fence: u64) {
        // One call: others write at the same time.
        let line = format!("{fence} {}\n", now().as_nanos());
        self.0.write_all(line.as_bytes()).unwrap();
    }

    /// The writes that it refused.
    pub fn refused(dir: &Path, name: usize) -> Vec<(u64, Duration)> {
        let path = dir.join("cells").join(name.to_string());
        let (mut largest, mut refused) = (0, Vec::new());
        for line in fs::read_to_string(path).unwrap_or_default().lines() {
            let (fence, moment) = line.split_once(' ').unwrap();
            let fence = fence.parse().unwrap();
            if fence < largest {
                refused.push((fence, Duration::from_nanos(moment.parse().unwrap())));
            }
            largest = largest.max(fence);
        }
        refused
    }
}
