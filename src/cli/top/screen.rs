//! The terminal while it is ours: whatever ends the program, it is left as it was found.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use console::Term;
use nix::sys::termios::{
    FlushArg, LocalFlags, SetArg, SpecialCharacterIndices, Termios, tcflush, tcgetattr, tcsetattr,
};

/// The other screen, without a cursor; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// What has to be put back, by a panic too: so it is of the process and not of a value.
static FOUND: Mutex<Option<(File, Termios)>> = Mutex::new(None);

/// Leaves when it is dropped.
pub(super) struct Screen {
    keys: File,
    out: File,
}

impl Screen {
    /// Whether there is one that can show more than lines.
    pub(super) fn is_there() -> bool {
        let term = std::env::var_os("TERM").unwrap_or_default();
        let is_smart = !term.is_empty() && term != "dumb";
        is_smart && io::stdin().is_terminal() && io::stdout().is_terminal()
    }

    pub(super) fn open() -> io::Result<Screen> {
        let [keys, out] =
            [io::stdin().as_fd(), io::stdout().as_fd()].map(|fd| fd.try_clone_to_owned());
        Screen::on(keys?.into(), out?.into())
    }

    fn on(keys: File, out: File) -> io::Result<Screen> {
        let screen = Screen { keys, out };
        screen.enter()?;
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            leave();
            usual(panic);
        }));
        Ok(screen)
    }

    /// In the background this stops the process, as the terminal does to who writes there.
    pub(super) fn enter(&self) -> io::Result<()> {
        let modes = tcgetattr(&self.out)?;
        let mut ours = modes.clone();
        ours.local_flags -= LocalFlags::ICANON | LocalFlags::ECHO;
        ours.control_chars[SpecialCharacterIndices::VMIN as usize] = 1;
        ours.control_chars[SpecialCharacterIndices::VTIME as usize] = 0;
        // Noted first: whatever fails from here on, it is put back.
        *found() = Some((self.out.try_clone()?, modes));
        tcsetattr(&self.out, SetArg::TCSADRAIN, &ours)?;
        self.show(ENTER)
    }

    pub(super) fn show(&self, frame: &str) -> io::Result<()> {
        (&self.out).write_all(frame.as_bytes())
    }

    /// What is typed already; nothing at the end.
    pub(super) fn read(&self) -> io::Result<Vec<u8>> {
        let mut some = [0; 64];
        let count = (&self.keys).read(&mut some)?;
        Ok(some[..count].to_vec())
    }

    /// What is typed already is read by nobody.
    pub(super) fn forget(&self) -> io::Result<()> {
        Ok(tcflush(&self.keys, FlushArg::TCIFLUSH)?)
    }

    /// Rows and columns.
    pub(super) fn size() -> (usize, usize) {
        let (rows, columns) = Term::stdout().size_checked().unwrap_or((24, 80));
        (usize::from(rows).max(1), usize::from(columns).max(1))
    }
}

impl AsFd for Screen {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.keys.as_fd()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

fn found() -> MutexGuard<'static, Option<(File, Termios)>> {
    FOUND.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A terminal that has hung up needs nothing any more.
pub(super) fn leave() {
    if let Some((mut out, modes)) = found().take() {
        let _ = out.write_all(LEAVE.as_bytes());
        let _ = tcsetattr(&out, SetArg::TCSADRAIN, &modes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::pty::openpty;

    #[test]
    fn a_panic_leaves_the_terminal_as_it_was_and_is_read_there() {
        let pty = openpty(None, None).unwrap();
        let (theirs, before) = (File::from(pty.slave), tcgetattr(&pty.master).unwrap());
        let (keys, out) = (theirs.try_clone().unwrap(), theirs.try_clone().unwrap());
        let ended = std::thread::spawn(move || {
            let screen = Screen::on(keys, out).unwrap();
            let modes = tcgetattr(&screen.out).unwrap();
            assert!(!modes.local_flags.intersects(LocalFlags::ICANON | LocalFlags::ECHO));
            panic!("on purpose");
        })
        .join();
        assert_eq!(ended.unwrap_err().downcast_ref(), Some(&"on purpose"));
        assert_eq!(tcgetattr(&pty.master).unwrap().local_flags, before.local_flags);
        let mut said = vec![0; ENTER.len() + LEAVE.len()];
        File::from(pty.master).read_exact(&mut said).unwrap();
        assert_eq!(String::from_utf8_lossy(&said), format!("{ENTER}{LEAVE}"));
    }
}
