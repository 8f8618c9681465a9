//! A thread that ends in a forked child too.
//!
//! At the end of each of its threads, `std` takes a mutex of the process for an instant. A child
//! that was forked in such an instant inherits it locked: its threads never end, and closing a
//! client waits for ever. What is made with pthread_create copes with forks.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::io;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::panic::{AssertUnwindSafe, catch_unwind};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

/// As `std` gives its threads.
const STACK: usize = 2 << 20;

thread_local! {
    static OURS: Cell<bool> = const { Cell::new(false) };
}

pub(crate) fn is_ours() -> bool {
    OURS.get()
}

/// Starts threads that take no signals: those are for the program's own, which may block them all
/// to wait for them in its own way. (What a thread does wrong itself still reaches it.)
pub(crate) fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    let mut signals = SigSet::all();
    for fault in [Signal::SIGSEGV, Signal::SIGBUS, Signal::SIGFPE, Signal::SIGILL, Signal::SIGABRT]
    {
        signals.remove(fault);
    }
    let before = signals.thread_swap_mask(SigmaskHow::SIG_SETMASK);
    let started = start();
    let _ = before.and_then(|before| before.thread_set_mask());
    started
}

/// A thread that was started; dropping this lets it go.
pub(crate) struct Thread(libc::pthread_t);

// SAFETY: it is a thread's name, which every thread may use. With musl it is written as a pointer,
// which nobody here follows.
unsafe impl Send for Thread {}
// SAFETY: as above; a shared one is not used at all.
unsafe impl Sync for Thread {}

type Work = Box<dyn FnOnce() + Send>;

impl Thread {
    /// The name has 15 bytes at most.
    pub(crate) fn start(
        name: &'static CStr,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<Thread> {
        let work = move || {
            OURS.set(true);
            // SAFETY: this very thread, and a string that ends with zero.
            #[cfg(target_os = "linux")]
            unsafe {
                libc::pthread_setname_np(libc::pthread_self(), name.as_ptr())
            };
            // SAFETY: the same; there, a thread names no other one.
            #[cfg(target_os = "macos")]
            unsafe {
                libc::pthread_setname_np(name.as_ptr())
            };
            work();
        };
        let work: *mut Work = Box::into_raw(Box::new(Box::new(work)));
        let mut attributes = MaybeUninit::uninit();
        let mut thread = MaybeUninit::uninit();
        // SAFETY: the attributes are initialised before they are used and destroyed after that;
        // `run` takes back what `work` leads to.
        let failed = without_signals(|| unsafe {
            libc::pthread_attr_init(attributes.as_mut_ptr());
            libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK);
            let failed = libc::pthread_create(
                thread.as_mut_ptr(),
                attributes.as_ptr(),
                run,
                work.cast::<c_void>(),
            );
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
            failed
        });
        if failed != 0 {
            // SAFETY: it comes from Box::into_raw, and no thread has taken it.
            drop(unsafe { Box::from_raw(work) });
            return Err(io::Error::from_raw_os_error(failed));
        }
        // SAFETY: it succeeded, so it wrote which thread that is.
        Ok(Thread(unsafe { thread.assume_init() }))
    }

    pub(crate) fn join(self) {
        let thread = ManuallyDrop::new(self);
        // SAFETY: it was neither joined nor detached: both take the only `Thread` there is.
        unsafe { libc::pthread_join(thread.0, std::ptr::null_mut()) };
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        // SAFETY: as for `join`.
        unsafe { libc::pthread_detach(self.0) };
    }
}

extern "C" fn run(work: *mut c_void) -> *mut c_void {
    // SAFETY: `start` made it so and gave it to this call alone.
    let work = unsafe { Box::from_raw(work.cast::<Work>()) };
    // Nothing unwinds into C. What was panicked with is not dropped: that runs its code.
    std::mem::forget(catch_unwind(AssertUnwindSafe(work)));
    std::ptr::null_mut()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_thread_does_its_work_and_is_joined() {
        let (sender, receiver) = mpsc::channel();
        let thread = Thread::start(c"a name", move || {
            let name = std::fs::read_to_string("/proc/thread-self/comm");
            sender.send((is_ours(), name.unwrap())).unwrap();
        });
        let thread = thread.unwrap();
        assert!(!is_ours());
        thread.join();
        assert_eq!(receiver.recv().unwrap(), (true, "a name\n".to_owned()));
    }

    #[test]
    fn a_thread_takes_no_signals_and_its_starter_goes_on_to() {
        let blocked = || {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:\t"));
            u64::from_str_radix(line.unwrap(), 16).unwrap()
        };
        let term = 1 << (libc::SIGTERM - 1);
        let (sender, receiver) = mpsc::channel();
        Thread::start(c"deaf", move || sender.send(blocked()).unwrap()).unwrap().join();
        assert_ne!(receiver.recv().unwrap() & term, 0);
        assert_eq!(blocked() & term, 0);
    }

    #[test]
    fn a_thread_that_is_let_go_goes_on() {
        let (sender, receiver) = mpsc::channel();
        drop(Thread::start(c"let go", move || sender.send(()).unwrap()).unwrap());
        receiver.recv().unwrap();
    }
}
