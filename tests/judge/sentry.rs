//! Looks at the keys of the locks, all the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::NAMES;
use super::stores::{Store, ms};
use super::verdict::Free;
use kit::history::now;

pub struct Sentry {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Free>,
}

impl Sentry {
    /// On one Redis only.
    pub fn of(store: &Store) -> Option<Sentry> {
        let Store::Redis(server) = store else { return None };
        let client = redis::Client::open(server.url()).unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let looks = over.clone();
        let thread = std::thread::spawn(move || {
            let (mut free, mut was_free) = (Free::default(), [false; NAMES.len()]);
            let mut connection = None;
            while !looks.load(Ordering::Relaxed) {
                std::thread::sleep(ms(4));
                let link = match &mut connection {
                    Some(link) => link,
                    None => match client.get_connection() {
                        Ok(link) => connection.insert(link),
                        Err(_) => continue,
                    },
                };
                let looked = now();
                let mut look = redis::pipe();
                for name in NAMES {
                    look.exists(name);
                }
                let Ok(taken) = look.query::<Vec<bool>>(link) else {
                    (connection, was_free) = (None, Default::default());
                    continue;
                };
                for (name, taken) in taken.into_iter().enumerate() {
                    match free[name].last_mut() {
                        Some(last) if was_free[name] && !taken => last.1 = looked,
                        _ if !taken => free[name].push((looked, looked)),
                        _ => {}
                    }
                    was_free[name] = !taken;
                }
            }
            free
        });
        Some(Sentry { over, thread })
    }

    pub fn free(self) -> Free {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}
