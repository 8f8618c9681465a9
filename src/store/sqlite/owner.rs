//! Which process has the file locked, as the kernel tells. A process that is stopped in a
//! transaction keeps all others out, for as long as it stands still; nobody else can end that.

use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::files::beside;
use super::mount::{device_of, mount_of};

/// Where SQLite keeps its locks: of the shared memory, the byte of the one that may write to the log, and
/// those of recovery, of readers' marks, and of who sets it up.
const WRITE: u64 = 120;
const MARKS: std::ops::RangeInclusive<u64> = 122..=128;
/// In the file itself, from here on.
const PENDING: u64 = 0x4000_0000;

pub(super) struct Owner {
    pid: u32,
    program: String,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Goes,
    /// By a signal: SIGSTOP, or Ctrl-Z.
    Stopped,
    /// By a debugger, which is this process.
    Traced(u32),
    /// With all of its container.
    Frozen,
}

impl Owner {
    /// `Ok(None)` if no process has it that can be seen from here, `Err` if nothing can be seen.
    pub(super) fn of(path: &Path) -> std::io::Result<Option<Owner>> {
        let locks = fs::read_to_string("/proc/locks")?;
        // What is beside a symbolic link is not what is beside the file.
        let path = &*path.canonicalize()?;
        let shm = beside(path, "-shm");
        let written = writers(&locks, &keys(&shm));
        let is_at = |(_, first, last): &&(u32, u64, u64), byte| (*first..=*last).contains(&byte);
        let writes = written.iter().find(|lock| is_at(lock, WRITE));
        let marks = || written.iter().find(|lock| MARKS.into_iter().any(|at| is_at(lock, at)));
        let opens = || writers(&locks, &keys(path)).into_iter().find(|(.., last)| *last >= PENDING);
        let found = writes.or_else(marks).copied().or_else(opens);
        Ok(found.map(|(pid, ..)| Owner { pid, program: program(pid), state: state(pid) }))
    }

    #[cfg(feature = "examine")]
    pub(super) fn stands_still(&self) -> bool {
        self.state != State::Goes
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Owner { pid, program, state } = self;
        let what = match *pid == std::process::id() {
            true => "a thread of this process".to_owned(),
            false => format!("process {pid} ({program})"),
        };
        match state {
            State::Goes => write!(f, "other callers kept it locked until the deadline, now {what}"),
            State::Stopped => write!(
                f,
                "{what} has it locked and is stopped: continue it (kill -CONT {pid}), or end it"
            ),
            State::Traced(by) => write!(
                f,
                "{what} has it locked and is stopped by a debugger, process {by}: let it go on, or \
                 end it"
            ),
            State::Frozen => write!(
                f,
                "{what} has it locked and is frozen with its container: thaw that (docker unpause), \
                 or end it"
            ),
        }
    }
}

/// How `/proc/locks` may name a file: by the device that stat(2) says, or, on an overlay or a
/// btrfs, by that of its mount.
fn keys(path: &Path) -> Vec<String> {
    let Ok(found) = fs::metadata(path) else { return Vec::new() };
    let own = (libc::major(found.dev()), libc::minor(found.dev()));
    let mount = mount_of(path).ok().flatten();
    let mount = mount.and_then(|mount| device_of(&mount).ok().flatten());
    let name = |(major, minor)| format!("{major:02x}:{minor:02x}:{}", found.ino());
    [Some(own), mount].into_iter().flatten().map(name).collect()
}

/// The locks of processes that exclude all others, on the file of one of these names: process,
/// first byte, last byte. Those of flock(2) keep SQLite out of nothing. `/proc/locks` has lines such as
/// `7: POSIX  ADVISORY  WRITE 4711 fe:00:131073 120 120`.
fn writers(locks: &str, names: &[String]) -> Vec<(u32, u64, u64)> {
    let lock = |line: &str| {
        let [_, class, _, kind, pid, file, first, last] =
            <[&str; 8]>::try_from(line.split_whitespace().collect::<Vec<_>>()).ok()?;
        let pid = pid.parse().ok().filter(|pid| *pid != 0)?;
        let last = if last == "EOF" { u64::MAX } else { last.parse().ok()? };
        let excludes = matches!(class, "POSIX" | "OFDLCK") && kind == "WRITE";
        let is_it = excludes && names.iter().any(|name| name == file);
        is_it.then_some((pid, first.parse().ok()?, last))
    };
    locks.lines().filter_map(lock).collect()
}

/// Without arguments, which may hold a password, but for the script that an interpreter runs.
fn program(pid: u32) -> String {
    let read = |what| fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
    let words = read("cmdline");
    let mut words = words.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    let endings = [".py", ".sh", ".rb", ".pl", ".js", ".jar"];
    let is_script = |word: &&[u8]| endings.iter().any(|end| word.ends_with(end.as_bytes()));
    if let Some(first) = words.next().and_then(plain) {
        return match words.next().filter(is_script).and_then(plain) {
            Some(script) => format!("{first} {script}"),
            None => first,
        };
    }
    let exe = || fs::read_link(format!("/proc/{pid}/exe")).ok();
    let exe = || plain(exe()?.file_name()?.as_bytes());
    plain(read("comm").trim_ascii_end()).or_else(exe).unwrap_or_else(|| "no name".to_owned())
}

/// The last part of a path. `None` if it may be more than a path: a program that gives itself a title has
/// all of it as its first word, as in `worker -b redis://:password@host:6379 -c 4`, and the kernel's
/// short name of it is often how that begins.
fn plain(word: &[u8]) -> Option<String> {
    let word = String::from_utf8_lossy(word);
    if word.contains(|sign: char| sign.is_whitespace() || "@:=".contains(sign)) {
        return None;
    }
    let name = Path::new(&*word).file_name()?;
    Some(name.to_string_lossy().chars().take(60).collect())
}

fn state(pid: u32) -> State {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let letter = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    match letter {
        Some('T') => State::Stopped,
        Some('t') => {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
            State::Traced(tracer.and_then(|by| by.trim().parse().ok()).unwrap_or(0))
        }
        _ if is_frozen(pid) => State::Frozen,
        _ => State::Goes,
    }
}

fn is_frozen(pid: u32) -> bool {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let Some(group) = groups.lines().find_map(|line| line.strip_prefix("0::/")) else {
        return false;
    };
    let events = Path::new("/sys/fs/cgroup").join(group).join("cgroup.events");
    let events = fs::read_to_string(events).unwrap_or_default();
    events.lines().any(|line| line == "frozen 1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_who_has_a_lock_that_excludes_others() {
        let locks = "1: POSIX  ADVISORY  READ 11 fe:00:7 123 123\n\
             2: POSIX  ADVISORY  WRITE 12 fe:00:7 120 120\n\
             2: -> POSIX  ADVISORY  WRITE 13 fe:00:7 120 120\n\
             3: POSIX  ADVISORY  WRITE 14 fe:00:8 120 120\n\
             4: OFDLCK ADVISORY  WRITE -1 fe:00:7 120 120\n\
             6: POSIX  ADVISORY  WRITE 0 fe:00:7 122 122\n\
             7: FLOCK  ADVISORY  WRITE 15 00:2b:7 0 EOF\n";
        let names =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(writers(locks, &names(&["fe:00:7"])), [(12, 120, 120)]);
        assert_eq!(writers(locks, &names(&["00:2b:7", "fe:00:8"])), [(14, 120, 120)]);
        assert_eq!(writers(locks, &[]), []);
    }

    #[test]
    fn c12_a_title_that_a_program_gives_itself_is_not_shown() {
        use std::os::unix::process::CommandExt;
        use std::process::Command;

        let named = |title: &str| {
            let mut child = Command::new("/bin/sleep").arg0(title).arg("60").spawn().unwrap();
            // It has no words for a moment, while the system puts the program into its place.
            let words = format!("/proc/{}/cmdline", child.id());
            while !fs::read(&words).unwrap().starts_with(title.as_bytes()) {
                std::thread::yield_now();
            }
            let named = program(child.id());
            child.kill().unwrap();
            child.wait().unwrap();
            named
        };
        assert_eq!(named("/usr/bin/worker"), "worker");
        for title in [
            "[celery] worker -b redis://:secret@broker:6379 -c 4)",
            "redis://:secret@broker",
            "secret@broker",
            "password=secret",
        ] {
            let shown = named(title);
            assert!(!shown.is_empty() && !shown.contains("secret"), "{shown}");
        }
        assert_eq!(plain(b"redis://:secret"), None);
        assert_eq!(plain(b"/srv/user:secret@host.py"), None);
        assert_eq!(plain(b"/usr/bin/python3").unwrap(), "python3");
    }

    #[test]
    fn a_process_is_said_with_what_it_runs_and_what_to_do() {
        let said = |state| Owner { pid: 7, program: "x".to_owned(), state }.to_string();
        assert!(said(State::Stopped).contains("process 7 (x) has it locked and is stopped"));
        assert!(said(State::Stopped).contains("kill -CONT 7"));
        assert!(said(State::Traced(9)).contains("a debugger, process 9"));
        assert!(said(State::Frozen).contains("docker unpause"));
        assert!(said(State::Goes).ends_with("until the deadline, now process 7 (x)"));
        let here = Owner { pid: std::process::id(), program: String::new(), state: State::Goes };
        assert!(here.to_string().ends_with("now a thread of this process"), "{here}");
    }
}
