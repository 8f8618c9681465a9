//! The clients of this process, for the one question that goes beyond a client: does a thread wait
//! for a lock that it holds by another client?

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::ThreadId;

use once_cell::race::OnceBox;

use super::core::Core;
use crate::clock::Moment;
use crate::config::StoreConfig;
use crate::fork::PerProcess;
use crate::grant::Grant;
use crate::system::KNOWS_OTHER_CLIENTS;

type Cores = Mutex<Vec<Weak<Core>>>;

/// A child has a list of its own: it may have been forked while another thread had this one locked.
static CORES: OnceBox<PerProcess<Cores>> = OnceBox::new();

fn here() -> Option<MutexGuard<'static, Vec<Weak<Core>>>> {
    let all = CORES.get_or_init(|| Box::new(PerProcess::new(Cores::default())));
    let cores = all.get_or_make(|| Ok(Cores::default())).ok()?;
    Some(cores.lock().unwrap_or_else(PoisonError::into_inner))
}

pub(super) fn add(core: &Arc<Core>) {
    if KNOWS_OTHER_CLIENTS && let Some(mut cores) = here() {
        cores.retain(|core| core.strong_count() > 0);
        cores.push(Arc::downgrade(core));
    }
}

/// The lease that a thread took on a name and still has, by this client or by another one of the same
/// store.
pub(crate) fn held_by(core: &Core, thread: ThreadId, name: &[u8]) -> Option<Arc<Grant>> {
    let key = [&*core.config.prefix, name].concat();
    let of = |other: &Core| held_in(other, thread, &key);
    of(core).or_else(|| of_same_store(core).iter().find_map(|other| of(other)))
}

/// The same, by this client alone.
pub(crate) fn held_in_client(core: &Core, thread: ThreadId, name: &[u8]) -> Option<Arc<Grant>> {
    held_in(core, thread, &[&*core.config.prefix, name].concat())
}

fn held_in(core: &Core, thread: ThreadId, key: &[u8]) -> Option<Arc<Grant>> {
    let (now, prefix) = (Moment::now(), &core.config.prefix);
    let name = key.strip_prefix(&**prefix)?;
    let book = core.book.lock();
    let is_it = |grant: &&Arc<Grant>| {
        grant.taker == thread && *grant.identity.name == *name && !grant.remaining(now).is_zero()
    };
    book.ends.values().find(is_it).cloned()
}

/// The other clients of the same store, as far as their URLs say.
fn of_same_store(core: &Core) -> Vec<Arc<Core>> {
    let mut others = of_store(&core.config.store);
    others.retain(|other| !std::ptr::eq(&**other, core));
    others
}

fn of_store(store: &StoreConfig) -> Vec<Arc<Core>> {
    let Some(cores) = here() else { return Vec::new() };
    // Dropping the last of a client takes a while, so the list is not locked for it.
    let all: Vec<_> = cores.iter().filter_map(Weak::upgrade).collect();
    drop(cores);
    all.into_iter().filter(|core| core.config.store == *store).collect()
}

/// Has all clients of a store renew now what they hold of these names, which stand with their prefixes.
#[cfg(feature = "testing")]
pub(crate) fn renew_now(store: &StoreConfig, keys: &[Vec<u8>]) {
    of_store(store).iter().for_each(|core| core.renew_now(keys));
}
