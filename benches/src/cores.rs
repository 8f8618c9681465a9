//! Which core runs what. Where the two ends of a connection run decides more about a figure than
//! any code: across cores, the idle one has to be woken for every message.

use std::fs;

use kit::Server;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The core of the client, and another one for servers where there is one.
pub(crate) struct Cores {
    own: usize,
    other: Option<usize>,
    allowed: CpuSet,
}

/// Where servers run, seen from the client.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    OneCore,
    CoreEach,
}

impl Cores {
    /// Chooses among those that this process may use.
    pub(crate) fn choose() -> nix::Result<Cores> {
        let allowed = sched_getaffinity(Pid::from_raw(0))?;
        let set = (0..CpuSet::count()).filter(|core| allowed.is_set(*core).unwrap_or(false));
        let cores: Vec<_> = set.collect();
        let own = *cores.last().ok_or(nix::Error::EINVAL)?;
        let others = || cores.iter().copied().filter(|core| *core != own);
        // The twin of a hyperthread is not another core; it is still better than none.
        let other = others().rfind(|core| siblings(*core) != siblings(own));
        Ok(Cores { own, other: other.or_else(|| others().next_back()), allowed })
    }

    /// The places that this machine has.
    pub(crate) fn places(&self) -> &'static [Place] {
        match self.other {
            Some(_) => &[Place::OneCore, Place::CoreEach],
            None => &[Place::OneCore],
        }
    }

    /// Keeps the calling thread, and those that it starts from now on, on the client's core.
    pub(crate) fn pin_self(&self) -> nix::Result<()> {
        sched_setaffinity(Pid::from_raw(0), &only(self.own)?)
    }

    /// Lets the calling thread, and those that it starts from now on, run anywhere.
    pub(crate) fn let_self_go(&self) -> nix::Result<()> {
        sched_setaffinity(Pid::from_raw(0), &self.allowed)
    }

    pub(crate) fn pin(&self, servers: &[&Server], place: Place) -> nix::Result<()> {
        let core = match place {
            Place::OneCore => self.own,
            Place::CoreEach => self.other.unwrap_or(self.own),
        };
        set(servers, &only(core)?)
    }

    pub(crate) fn let_go(&self, servers: &[&Server]) -> nix::Result<()> {
        set(servers, &self.allowed)
    }
}

/// All threads of them.
fn set(servers: &[&Server], cores: &CpuSet) -> nix::Result<()> {
    for server in servers {
        let folder = format!("/proc/{}/task", server.pid());
        let threads = fs::read_dir(folder).map_err(|_| nix::Error::ESRCH)?.flatten();
        for thread in threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok()) {
            sched_setaffinity(Pid::from_raw(thread), cores)?;
        }
    }
    Ok(())
}

fn only(core: usize) -> nix::Result<CpuSet> {
    let mut set = CpuSet::new();
    set.set(core)?;
    Ok(set)
}

fn siblings(core: usize) -> String {
    fs::read_to_string(format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"))
        .unwrap_or_else(|_| core.to_string())
}
