//! Which core runs what. Where the two ends of a connection run decides more about a figure than
//! any code: across cores, the idle one has to be woken for every message.

use std::fs;
use std::path::Path;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use super::bare::{Address, Bare};

/// The core of the client, and another one for the server where there is one.
#[derive(Clone, Copy)]
pub(super) struct Cores {
    pub(super) own: usize,
    pub(super) other: Option<usize>,
    allowed: CpuSet,
}

impl Cores {
    /// Chooses among those that this process may use.
    pub(super) fn choose() -> nix::Result<Cores> {
        let set = sched_getaffinity(Pid::from_raw(0))?;
        let allowed: Vec<_> =
            (0..CpuSet::count()).filter(|core| set.is_set(*core).unwrap_or(false)).collect();
        let own = *allowed.last().ok_or(nix::Error::EINVAL)?;
        let others = || allowed.iter().copied().filter(|core| *core != own);
        // The twin of a hyperthread is not another core; it is still better than none.
        let other = others().rfind(|core| siblings(*core) != siblings(own));
        Ok(Cores { own, other: other.or_else(|| others().next_back()), allowed: set })
    }

    /// Keeps the calling thread, and those that it starts from now on, on the client's core.
    pub(super) fn pin_self(self) -> nix::Result<()> {
        sched_setaffinity(Pid::from_raw(0), &only(self.own)?)
    }

    /// The same for all cores but the other one.
    pub(super) fn pin_beside(self) -> nix::Result<()> {
        let mut beside = self.allowed;
        if let Some(other) = self.other {
            beside.unset(other)?;
        }
        sched_setaffinity(Pid::from_raw(0), &beside)
    }

    /// The same for all of them.
    pub(super) fn let_self_go(self) -> nix::Result<()> {
        sched_setaffinity(Pid::from_raw(0), &self.allowed)
    }
}

/// Whether a process here is the server. One in a container tells a number that means another
/// process outside of it, or none; name and age tell them apart.
fn is_server(process: &str, uptime: f64) -> bool {
    let read = |file: &str| std::fs::read_to_string(Path::new("/proc").join(file)).ok();
    let name = read(&format!("{process}/comm")).unwrap_or_default();
    let age = || {
        let now: f64 = read("uptime")?.split_whitespace().next()?.parse().ok()?;
        let stat = read(&format!("{process}/stat"))?;
        // The name before the last bracket may hold anything; the start is the 20th field behind
        // it, in hundredths of a second.
        let (_, fields) = stat.rsplit_once(')')?;
        let started: f64 = fields.split_whitespace().nth(19)?.parse().ok()?;
        Some(now - started / 100.0)
    };
    let known = name.starts_with("redis") || name.starts_with("valkey");
    known && age().is_some_and(|age| (age - uptime).abs() < 3.0)
}

fn siblings(core: usize) -> Option<String> {
    fs::read_to_string(format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"))
        .ok()
        .or_else(|| Some(core.to_string()))
}

fn only(core: usize) -> nix::Result<CpuSet> {
    let mut set = CpuSet::new();
    set.set(core)?;
    Ok(set)
}

/// The threads of a server on this machine, and where they were allowed to run.
pub(super) struct Server {
    threads: Vec<(Pid, CpuSet)>,
}

impl Server {
    /// The process behind a connection, if it can be found here and may be moved.
    pub(super) fn behind(address: &Address, bare: &mut Bare) -> Option<Server> {
        let info = bare.info("server").ok()?;
        let process = field(&info, "process_id")?;
        let uptime = field(&info, "uptime_in_seconds")?.parse().ok()?;
        if !address.is_local() || !is_server(process, uptime) {
            return None;
        }
        let mut threads = Vec::new();
        for entry in fs::read_dir(Path::new("/proc").join(process).join("task")).ok()? {
            let thread = entry.ok()?.file_name().to_str()?.parse().ok().map(Pid::from_raw)?;
            let set = sched_getaffinity(thread).ok()?;
            sched_setaffinity(thread, &set).ok()?;
            threads.push((thread, set));
        }
        Some(Server { threads })
    }

    pub(super) fn pin(&self, core: usize) -> nix::Result<()> {
        let set = only(core)?;
        self.threads.iter().try_for_each(|(thread, _)| sched_setaffinity(*thread, &set))
    }

    /// Lets the server run again where it did.
    pub(super) fn let_go(&self) {
        for (thread, set) in &self.threads {
            // One that has ended meanwhile needs nothing.
            let _ = sched_setaffinity(*thread, set);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// A line `name:value` of `INFO`.
pub(super) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_pinned_runs_on_the_core_chosen() {
        let cores = Cores::choose().unwrap();
        assert_ne!(Some(cores.own), cores.other);
        std::thread::spawn(move || {
            cores.pin_self().unwrap();
            let set = sched_getaffinity(Pid::from_raw(0)).unwrap();
            let allowed = (0..CpuSet::count()).filter(|core| set.is_set(*core).unwrap());
            assert_eq!(allowed.collect::<Vec<_>>(), [cores.own]);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn info_is_read_by_line() {
        let info = "# Server\r\nprocess_id:12\r\nexecutable:/usr/bin/redis-server\r\n";
        assert_eq!(field(info, "process_id"), Some("12"));
        assert_eq!(field(info, "process"), None);
    }
}
