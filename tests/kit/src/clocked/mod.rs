//! A process's wall clock that can be moved while it runs: a small library, made by `cc` and
//! preloaded, stands between the process and the system's clock.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const SOURCE: &str = include_str!("shift.c");

/// How far a clock is from the machine's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offset {
    Ahead(Duration),
    Behind(Duration),
}

pub struct Clock {
    library: PathBuf,
    path: PathBuf,
    offset: File,
}

impl Clock {
    /// With its files in this directory.
    pub fn make(dir: &Path) -> Clock {
        let [source, library, path] = ["shift.c", "shift.so", "shift"].map(|name| dir.join(name));
        fs::write(&source, SOURCE).unwrap();
        let mut compile = Command::new("cc");
        compile.args(["-std=c11", "-Wall", "-Werror", "-O1", "-shared", "-fPIC", "-o"]);
        let output = compile.args([&library, &source]).output();
        let output = output.expect("the cc command is installed");
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "cc: {complaint}");
        let clock = Clock { library, offset: File::create(&path).unwrap(), path };
        clock.shift(Offset::Ahead(Duration::ZERO));
        clock
    }

    pub(super) fn wind(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("KIT_CLOCK", &self.path);
    }

    /// Moves it to this far from the machine's own.
    pub fn shift(&self, offset: Offset) {
        let nanoseconds = |span: Duration| i64::try_from(span.as_nanos()).unwrap();
        let offset = match offset {
            Offset::Ahead(span) => nanoseconds(span),
            Offset::Behind(span) => -nanoseconds(span),
        };
        // One aligned word: a process that has the file mapped sees the old one or the new one.
        self.offset.write_all_at(&offset.to_ne_bytes(), 0).unwrap();
    }
}
