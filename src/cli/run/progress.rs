//! What a wait shows on a terminal: one line.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use leasehold::command::plain;
use leasehold::{Client, Error, Lock, LockState};
use nix::unistd::{getpgrp, tcgetpgrp};

use crate::show::{seconds, who};

/// Waits that are shorter show nothing.
const FIRST: Duration = Duration::from_millis(500);
/// Between two looks at the lock.
const AGAIN: Duration = Duration::from_secs(1);

/// One line on standard error while this lives, if that is a terminal.
pub(crate) struct Progress {
    line: ProgressBar,
    /// Dropped with this, which ends the thread that draws.
    _alive: Sender<()>,
}

impl Progress {
    pub(crate) fn start(client: &Client, lock: &Lock) -> Progress {
        let line = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        // The style is a constant that can be read; one that could not would be the default.
        if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
            line.set_style(style);
        }
        let (_alive, dropped) = mpsc::channel();
        if io::stderr().is_terminal() {
            let (lock, store, theirs) = (lock.clone(), client.store().to_owned(), line.clone());
            // Without it, the line does not say which place is ours.
            let ours = client.id().unwrap_or_default();
            let drawing = move || draw(&lock, &ours, &store, &theirs, &dropped);
            // A thread, because asking may take as long as the store likes. The wait itself is
            // worth more than its line, so one that cannot be started is no error.
            let _ = thread::Builder::new().name("leasehold-line".to_owned()).spawn(drawing);
        }
        Progress { line, _alive }
    }

    /// Clears the line while something else has the terminal; it is drawn again at the next look.
    pub(super) fn hide_during(&self, other: impl FnOnce()) {
        self.line.finish_and_clear();
        self.line.set_draw_target(ProgressDrawTarget::hidden());
        self.line.reset();
        other();
        self.line.set_draw_target(ProgressDrawTarget::stderr());
    }
}

/// Does not wait for the thread, which may be asking; a finished line is not drawn any more.
impl Drop for Progress {
    fn drop(&mut self) {
        self.line.finish_and_clear();
    }
}

fn draw(lock: &Lock, ours: &str, store: &str, line: &ProgressBar, dropped: &Receiver<()>) {
    let start = Instant::now();
    let name = plain(lock.name());
    let place = shortened(store, std::env::var("HOME").ok().as_deref());
    let mut pause = FIRST;
    while dropped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
        let shown = lock.inspect();
        // In the background the line would run into what the user types.
        if tcgetpgrp(io::stderr()) == Ok(getpgrp()) {
            line.set_message(text(&name, ours, start.elapsed(), &place, shown));
        }
        pause = AGAIN;
    }
}

/// A narrow terminal cuts the end off, so what changes comes first.
fn text(
    name: &str,
    ours: &str,
    waited: Duration,
    place: &str,
    shown: Result<LockState, Error>,
) -> String {
    let start = format!("waiting {} for {name}", seconds(waited));
    match shown {
        Ok(shown) if shown.holder.is_some() => {
            let (line, holder) = (place_in_line(&shown, ours), shown.holder.unwrap_or_default());
            let left = seconds(holder.ttl);
            format!("{start}{line}, free in {left} unless renewed, {}, in {place}", who(&holder))
        }
        Ok(_) => format!("{start}, free at this moment, in {place}"),
        Err(error) => format!("{start}, cannot see it ({}), in {place}", error.kind().code()),
    }
}

/// Where the client of this number stands, if the store's queue shows it: its tokens begin with that.
fn place_in_line(shown: &LockState, ours: &str) -> String {
    let is_us = |token: &str| !ours.is_empty() && token.starts_with(ours);
    let place = shown.waiters.iter().position(|it| is_us(&it.token_prefix));
    let count = shown.waiters.len() as u64 + shown.more_waiters;
    place.map_or_else(String::new, |place| format!(", {} of {count} in line", place + 1))
}

/// The path of an embedded store as people write it.
fn shortened(store: &str, home: Option<&str>) -> String {
    let below = |home: &str| store.strip_prefix("sqlite:")?.strip_prefix(home)?.strip_prefix('/');
    let rest = home.filter(|home| !home.is_empty()).and_then(below);
    rest.map_or_else(|| store.to_owned(), |rest| format!("sqlite:~/{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_below_home_is_short() {
        let short = |store| shortened(store, Some("/home/u"));
        assert_eq!(short("sqlite:/home/u/x.db"), "sqlite:~/x.db");
        assert_eq!(short("sqlite:/home/uu/x.db"), "sqlite:/home/uu/x.db");
        assert_eq!(short("redis://host:6379/0"), "redis://host:6379/0");
        assert_eq!(shortened("sqlite:/x.db", Some("")), "sqlite:/x.db");
    }
}
