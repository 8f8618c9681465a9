//! `leasehold top`: the busiest locks of a store.

mod draw;
mod keys;
mod screen;
mod table;

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use leasehold::{Client, Error, Listing};
use log::LevelFilter;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use serde_json::{Value, json};

use crate::breaking::{said, us};
use crate::doctor::is_coloured;
use crate::exit::{self, Failure};
use crate::local_time::LocalTime;
use crate::show::{holder_of, millis};
use crate::signals::{self, Signals};
use crate::store::Store;
use crate::watch::{interval, is_read_after};
use draw::{Scene, Status};
use keys::{Act, Choices, Keyboard, Mode};
use screen::Screen;
use table::{Line, Sort, Table};

/// A look asks for so many pages of some hundred names at most; the next one goes on from there.
const PAGES: usize = 40;
/// And it asks for no further page after so long, so that keys are heard.
const LOOK: Duration = Duration::from_secs(2);
/// Turns of so long are counted, or of as many looks.
const WINDOW: (Duration, u32) = (Duration::from_secs(10), 5);

/// Show the busiest locks, refreshed every second
///
/// On a terminal it fills the screen: s sorts, / shows the names of a pattern, arrows
/// or j and k select, b breaks the selected lock after asking, h helps, q quits. Without
/// a terminal, and with --json, it prints a page for each refresh (a "look").
///
/// top asks for some hundred names at a time, and for some thousand in each look. In a
/// store with more names, each look reads a part. A turn is one holder's lease: top
/// counts one when the fence has changed, so of several between two looks it counts one.
///
/// Exit status: 0 you quit, --looks are over, or the reader closed its output; 64 usage;
/// 69 no store at the first look.
#[derive(clap::Args)]
#[command(
    verbatim_doc_comment,
    after_help = "Examples:\n  leasehold top\n  leasehold top --sort waiting 'stock:*'\n  \
        leasehold top --json --looks 2 | jq '.locks[] | select(.waiting > 0) | .name'"
)]
pub(crate) struct Args {
    #[command(flatten)]
    store: Store,
    /// Time between two looks; 20ms to 1h
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    every: Duration,
    /// End after this many looks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    looks: Option<u64>,
    /// What comes first
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    sort: Sort,
    /// So many locks in a page that is printed
    #[arg(long, value_name = "N", default_value_t = 20)]
    rows: usize,
    /// Print a line of JSON for each look
    ///
    /// Its keys: at_ms (since 1970), store, latency_ms, held, waiting, is_part (not
    /// all names were asked for in this look), error, and locks, a list of what ls
    /// has of each, with turns_per_second.
    #[arg(long, verbatim_doc_comment)]
    json: bool,
    /// Which names: * is anything, ? one character, a backslash takes the next as it is
    #[arg(value_name = "PATTERN", default_value = "*", hide_default_value = true)]
    pattern: OsString,
}

pub(crate) fn main(args: &Args) -> Result<u8, Failure> {
    if args.json || !Screen::is_there() {
        return print(args);
    }
    // First of all: the client starts threads.
    let wrong = |error| Failure::system("the terminal", error);
    let signals = Signals::watch().map_err(|error| wrong(error.into()))?;
    // In the background, the terminal is to stop it.
    let _ = SigSet::from(Signal::SIGTTOU).thread_unblock();
    let client = args.store.open()?;
    let mut top = Top::new(args, &client, Some(&signals));
    top.look()?;
    let screen = Screen::open().map_err(wrong)?;
    // It would be written over the screen, which says itself what is wrong.
    log::set_max_level(LevelFilter::Off);
    let ended = top.run(&screen).map_err(wrong)?;
    drop(screen);
    ended.into_iter().for_each(end);
    Ok(0)
}

fn end(signal: Signal) {
    screen::leave();
    if signal == Signal::SIGINT {
        signals::end_interrupted();
    }
    std::process::exit(exit::of_signal(signal).into());
}

fn print(args: &Args) -> Result<u8, Failure> {
    let client = args.store.open()?;
    let mut top = Top::new(args, &client, None);
    top.look()?;
    let mut looks = 1;
    loop {
        let is_read = crate::exit::print(&top.printed())?;
        if !is_read || args.looks.is_some_and(|most| looks >= most) || !is_read_after(args.every) {
            return Ok(0);
        }
        looks += 1;
        // Its page says what was wrong.
        let _ = top.look();
    }
}

struct Top<'a> {
    args: &'a Args,
    client: &'a Client,
    /// They end a look; without, they end the process.
    signals: Option<&'a Signals>,
    clock: LocalTime,
    pattern: Vec<u8>,
    /// Of a scan that is not yet at its end.
    listing: Option<Listing>,
    table: Table,
    status: Status,
    choices: Choices,
}

impl<'a> Top<'a> {
    fn new(args: &'a Args, client: &'a Client, signals: Option<&'a Signals>) -> Top<'a> {
        let choices = Choices { sort: args.sort, ..Choices::default() };
        let pattern = args.pattern.clone().into_vec();
        let (clock, table, status) = (LocalTime::new(), table(args), Status::default());
        Top { args, client, signals, clock, pattern, listing: None, table, status, choices }
    }

    /// What waits for the store, which may be silent.
    fn endable<T>(&mut self, ask: impl FnOnce(&mut Self) -> T) -> T {
        match self.signals {
            Some(_) => signals::ended_meanwhile(end, || ask(self)),
            None => ask(self),
        }
    }

    /// One look. What it could not ask for, the next one does.
    fn look(&mut self) -> Result<(), Error> {
        let result = self.endable(|top| top.pages());
        self.status.error = result.as_ref().err().map(ToString::to_string);
        result
    }

    fn pages(&mut self) -> Result<(), Error> {
        let start = Instant::now();
        self.client.ping()?;
        self.status.latency = start.elapsed();
        let mut listing =
            self.listing.take().unwrap_or_else(|| self.client.list(&self.pattern).all());
        for _ in 0..PAGES {
            let Some(page) = listing.next_page() else {
                self.table.end_scan(Instant::now());
                (self.status.took, self.status.is_part) = (start.elapsed(), false);
                return Ok(());
            };
            let (page, now) = (page?, Instant::now());
            page.into_iter().for_each(|listed| self.table.see(listed, now));
            if start.elapsed() >= LOOK || self.signals.is_some_and(Signals::have_arrived) {
                break;
            }
        }
        (self.status.took, self.status.is_part) = (start.elapsed(), true);
        self.listing = Some(listing);
        Ok(())
    }

    fn scene<'s>(&'s self, lines: &'s [Line<'s>]) -> Scene<'s> {
        Scene {
            store: self.client.store(),
            clock: self.clock.now(),
            pattern: &self.pattern,
            status: &self.status,
            counts: self.table.counts(),
            choices: &self.choices,
            lines,
            is_coloured: is_coloured(),
        }
    }

    fn lines(&self) -> Vec<Line<'_>> {
        self.table.sorted(self.choices.sort, Instant::now())
    }

    fn printed(&self) -> String {
        let lines = self.lines();
        let (scene, most) = (self.scene(&lines), self.args.rows);
        if !self.args.json {
            return draw::page(&scene, most) + "\n";
        }
        let object = json!({
            "at_ms": SystemTime::now().duration_since(UNIX_EPOCH).map(millis).ok(),
            "store": scene.store,
            "latency_ms": self.status.latency.as_secs_f64() * 1000.0,
            "held": scene.counts.held,
            "waiting": scene.counts.waiting,
            "is_part": self.status.is_part,
            "error": self.status.error,
            "locks": lines.iter().take(most).map(machine).collect::<Vec<_>>(),
        });
        format!("{object}\n")
    }

    fn show(&mut self, screen: &Screen) -> io::Result<()> {
        let lines = self.table.sorted(self.choices.sort, Instant::now());
        self.choices.show(&lines);
        screen.show(&draw::frame(&self.scene(&lines), Screen::size()))
    }

    /// Until the user quits, or a signal ends it.
    fn run(&mut self, screen: &Screen) -> io::Result<Option<Signal>> {
        let Some(signals) = self.signals else { return Ok(None) };
        let (mut keyboard, mut looks) = (Keyboard::default(), 1);
        let mut next = Instant::now() + self.args.every;
        loop {
            self.show(screen)?;
            let left = next.saturating_duration_since(Instant::now());
            let limit = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut sources = [screen.as_fd(), signals.as_fd()]
                .map(|source| PollFd::new(source, PollFlags::POLLIN));
            match poll(&mut sources, limit) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            let is_typed = sources[0].any().unwrap_or(true);
            while let Some(signal) = signals.read() {
                match signal {
                    Signal::SIGTSTP => {
                        screen::leave();
                        signals::suspend();
                        screen.enter()?;
                    }
                    Signal::SIGCHLD | Signal::SIGCONT | Signal::SIGWINCH => {}
                    signal => return Ok(Some(signal)),
                }
            }
            if is_typed {
                let typed = screen.read()?;
                if typed.is_empty() {
                    return Ok(Some(Signal::SIGHUP));
                }
                for key in keyboard.typed(&typed) {
                    if self.press(key) {
                        return Ok(None);
                    }
                    if matches!(self.choices.mode, Mode::Break { .. }) {
                        // Nothing that is typed before the question is seen answers it.
                        keyboard = Keyboard::default();
                        screen.forget()?;
                        self.show(screen)?;
                        break;
                    }
                }
            }
            if Instant::now() >= next {
                if self.args.looks.is_some_and(|most| looks >= most) {
                    return Ok(None);
                }
                looks += 1;
                // The screen says what was wrong.
                let _ = self.look();
                next = Instant::now() + self.args.every;
            }
        }
    }

    /// Whether it is over.
    fn press(&mut self, key: keys::Key) -> bool {
        // Of many locks that takes a while, for each letter of a pattern, too.
        let is_about_lines = self.choices.mode == Mode::Plain;
        let sorted = || self.table.sorted(self.choices.sort, Instant::now());
        let lines = if is_about_lines { sorted() } else { Vec::new() };
        match self.choices.press(key, &lines) {
            Some(Act::Quit) => return true,
            Some(Act::Filter(text)) => {
                self.pattern = if text.is_empty() { b"*".into() } else { text.into_bytes() };
                (self.listing, self.table) = (None, table(self.args));
                // The screen says what was wrong.
                let _ = self.look();
            }
            Some(Act::Break { name, fence }) => {
                let lock = self.client.lock(&name);
                let outcome = self.endable(|_| lock.break_held(Some(fence), &us()));
                self.choices.notice = match outcome {
                    Ok(outcome) => said(&name, Some(outcome)),
                    Err(error) => error.to_string(),
                };
                let _ = self.look();
            }
            None => {}
        }
        false
    }
}

fn table(args: &Args) -> Table {
    Table::new(WINDOW.0.max(args.every.saturating_mul(WINDOW.1)), Instant::now())
}

fn machine(line: &Line<'_>) -> Value {
    let mut object = holder_of(line.name, &line.row.state);
    object["waiting"] = json!(line.row.waiting);
    object["turns_per_second"] = json!(line.rate);
    object
}
