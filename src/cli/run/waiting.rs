//! The line that a wait shows on a terminal.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use leasehold::{Error, Lock, Shown};
use nix::unistd::{getpgrp, tcgetpgrp};
use parking_lot::{Condvar, Mutex};

use crate::exit::plain;
use crate::show::{held, seconds};

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
            shared.screen.lock().clear();
        }
    }
}

/// Clears the line. Does not wait for the thread, which may be asking; it draws nothing any more.
impl Drop for Line {
    fn drop(&mut self) {
        if let Some(shared) = &self.0 {
            let mut screen = shared.screen.lock();
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
        bar.tick();
    }
}

fn draw(lock: &Lock, store: &str, shared: &Shared) {
    let start = Instant::now();
    let name = plain(lock.name());
    let mut next = start + FIRST;
    loop {
        let mut screen = shared.screen.lock();
        while !screen.over && Instant::now() < next {
            shared.ended.wait_until(&mut screen, next);
        }
        if screen.over {
            return;
        }
        drop(screen);
        let holder = holder(lock.show());
        let mut screen = shared.screen.lock();
        if screen.over {
            return;
        }
        // In the background the line would run into what the user types.
        if tcgetpgrp(io::stderr()) == Ok(getpgrp()) {
            let waited = seconds(start.elapsed());
            screen.show(format!("waiting {waited} for {name} in {store}: {holder}"));
        }
        next = Instant::now() + AGAIN;
    }
}

fn holder(shown: Result<Shown, Error>) -> String {
    match shown {
        Ok(Shown { holder: Some(holder), .. }) => held(&holder),
        Ok(_) => "free at this moment".to_owned(),
        Err(error) => format!("cannot see it ({})", error.kind().code()),
    }
}
