//! The line that a wait shows on a terminal.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use leasehold::{Error, Lock, Shown};
use nix::unistd::{getpgrp, tcgetpgrp};

use crate::exit::plain;
use crate::show::{seconds, who};

/// Waits that are shorter show nothing.
const FIRST: Duration = Duration::from_millis(500);
/// Between two looks at the lock.
const AGAIN: Duration = Duration::from_secs(1);

/// One line on standard error while this lives, if that is a terminal.
pub(super) struct Line(Option<Arc<Shared>>);

#[derive(Default)]
struct Shared {
    screen: Mutex<Screen>,
    ended: Condvar,
}

impl Shared {
    fn screen(&self) -> MutexGuard<'_, Screen> {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct Screen {
    bar: Option<ProgressBar>,
    over: bool,
}

impl Line {
    pub(super) fn start(lock: &Lock, store: &str) -> Line {
        if !io::IsTerminal::is_terminal(&io::stderr()) {
            return Line(None);
        }
        let shared = Arc::new(Shared::default());
        let (lock, store, theirs) = (lock.clone(), store.to_owned(), Arc::clone(&shared));
        let drawing = move || draw(&lock, &store, &theirs);
        // A thread, because asking may take as long as the store likes. The wait itself is worth
        // more than its line, so one that cannot be started is no error.
        let started = thread::Builder::new().name("leasehold-line".to_owned()).spawn(drawing);
        Line(started.is_ok().then_some(shared))
    }

    /// Clears the line until it is drawn again.
    pub(super) fn hide(&self) {
        if let Some(shared) = &self.0 {
            shared.screen().clear();
        }
    }
}

/// Clears the line. Does not wait for the thread, which may be asking; it draws nothing any more.
impl Drop for Line {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            let mut screen = shared.screen();
            screen.over = true;
            screen.clear();
            shared.ended.notify_all();
        }
    }
}

impl Screen {
    fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn show(&mut self, text: String) {
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            // The style is a constant that can be read; one that could not would be the default.
            if let Ok(style) = ProgressStyle::with_template("{wide_msg}") {
                bar.set_style(style);
            }
            bar
        });
        bar.set_message(text);
    }
}

fn draw(lock: &Lock, store: &str, shared: &Shared) {
    let start = Instant::now();
    let name = plain(lock.name());
    let place = shortened(store, std::env::var("HOME").ok().as_deref());
    let mut next = start + FIRST;
    loop {
        let mut screen = shared.screen();
        while !screen.over && Instant::now() < next {
            let left = next.saturating_duration_since(Instant::now());
            let waited = shared.ended.wait_timeout(screen, left);
            screen = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if screen.over {
            return;
        }
        drop(screen);
        let shown = lock.show();
        let mut screen = shared.screen();
        if screen.over {
            return;
        }
        // In the background the line would run into what the user types.
        if tcgetpgrp(io::stderr()) == Ok(getpgrp()) {
            screen.show(text(&name, start.elapsed(), &place, shown));
        }
        next = Instant::now() + AGAIN;
    }
}

/// A narrow terminal cuts the end off, so what changes comes first.
fn text(name: &str, waited: Duration, place: &str, shown: Result<Shown, Error>) -> String {
    let start = format!("waiting {} for {name}", seconds(waited));
    match shown {
        Ok(Shown { holder: Some(holder), .. }) => {
            let left = seconds(holder.ttl);
            format!("{start}, {left} left, in {place}, held by {}", who(&holder))
        }
        Ok(_) => format!("{start}, free at this moment, in {place}"),
        Err(error) => format!("{start}, cannot see it ({}), in {place}", error.kind().code()),
    }
}

/// The path of an embedded store as people write it.
fn shortened(store: &str, home: Option<&str>) -> String {
    match home
        .filter(|home| !home.is_empty())
        .and_then(|home| store.strip_prefix("sqlite:")?.strip_prefix(home)?.strip_prefix('/'))
    {
        Some(rest) => format!("sqlite:~/{rest}"),
        None => store.to_owned(),
    }
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
