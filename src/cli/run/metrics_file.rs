//! The file for node exporter's textfile collector: what was measured of a run, written anew now and
//! then, and at its end. Nothing of it holds up the run, or keeps it from being made.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, SystemTime};

use leasehold::Client;

use crate::exit::say;

/// As often as Prometheus usually looks, or more often.
const EVERY: Duration = Duration::from_secs(15);
/// A folder on a network may stand still; the run ends all the same.
const LAST_WRITE: Duration = Duration::from_secs(5);

/// Written by a thread of its own until the run ends.
pub(super) struct MetricsFile {
    end: Sender<u8>,
    is_written: Receiver<()>,
}

impl MetricsFile {
    pub(super) fn start(path: &Path, lock: &[u8], client: &Client) -> io::Result<MetricsFile> {
        let (end, ended) = channel();
        let (written, is_written) = channel();
        let mut run = Run {
            path: path.to_owned(),
            lock: String::from_utf8_lossy(lock).into_owned(),
            client: client.clone(),
            start: SystemTime::now(),
            has_failed: false,
        };
        thread::Builder::new().name("leasehold-metrics".to_owned()).spawn(move || {
            loop {
                run.write(None);
                match ended.recv_timeout(EVERY) {
                    Ok(status) => break run.write(Some(status)),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
            // Where nobody waits any more, nobody is told.
            let _ = written.send(());
        })?;
        Ok(MetricsFile { end, is_written })
    }

    /// Writes what the run has come to.
    pub(super) fn finish(self, status: u8) {
        if self.end.send(status).is_ok() {
            let _ = self.is_written.recv_timeout(LAST_WRITE);
        }
    }
}

struct Run {
    path: PathBuf,
    lock: String,
    client: Client,
    start: SystemTime,
    has_failed: bool,
}

impl Run {
    fn write(&mut self, status: Option<u8>) {
        if let Err(error) = self.try_to_write(status)
            && !std::mem::replace(&mut self.has_failed, true)
        {
            let path = self.path.display();
            say(&format!("the metrics cannot be written to {path}: {error}; the run goes on"));
        }
    }

    /// A reader finds the file as it was, or whole: it is written under another name, which no
    /// collector looks for, and then takes its place.
    fn try_to_write(&self, status: Option<u8>) -> io::Result<()> {
        let name = self.path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
        let hidden = format!(".{}.{}", name.to_string_lossy(), process::id());
        let beside = self.path.with_file_name(hidden);
        let written = File::create(&beside)
            .and_then(|mut file| file.write_all(self.text(status).as_bytes()))
            .and_then(|()| fs::rename(&beside, &self.path));
        if written.is_err() {
            // What is not there need not be removed.
            let _ = fs::remove_file(&beside);
        }
        written
    }

    fn text(&self, status: Option<u8>) -> String {
        // Of two jobs under one lock, each has a file of its own, and by its name series of its own.
        let run = self.path.file_stem().unwrap_or_default().to_string_lossy();
        let mut text = self.client.metrics_text_of_run(&self.lock, &run);
        let held = text.lines().find_map(|line| line.strip_prefix("leasehold_held"));
        let labels = held.and_then(|held| held.rsplit_once(' ')).map_or("", |(labels, _)| labels);
        let labels = labels.to_owned();
        let mut gauge = |name: &str, help: &str, value: u64| {
            let name = format!("leasehold_run_{name}");
            text += &format!("# HELP {name} {help}\n# TYPE {name} gauge\n{name}{labels} {value}\n");
        };
        gauge("start_timestamp_seconds", "When the run began.", unix(self.start));
        let now = unix(SystemTime::now());
        gauge("written_timestamp_seconds", "When this file was written.", now);
        if let Some(status) = status {
            gauge("end_timestamp_seconds", "When the run ended.", now);
            gauge("exit_status", "What leasehold run ended with.", status.into());
        }
        text
    }
}

fn unix(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
