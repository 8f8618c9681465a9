//! The log as a socket, which somebody reads.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

use super::{LEASEHOLD_LOG_OFF, LEASEHOLD_LOG_RECORD, leasehold_log_level, set};
use crate::capi::failure::{Failure, LEASEHOLD_ERR_EXHAUSTED, bad};
use crate::fork::Birth;

/// Sends the log into a new one, and returns the end to read from.
pub(super) fn open(level: leasehold_log_level) -> Result<c_int, Failure> {
    if level == LEASEHOLD_LOG_OFF {
        return Err(bad("nothing would come out of a log that is off"));
    }
    let (mut ends, flags) = ([-1; 2], libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK);
    // SAFETY: there is room for two descriptors.
    if unsafe {
        libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET | flags, 0, ends.as_mut_ptr())
    } != 0
    {
        let error = std::io::Error::last_os_error();
        return Err(Failure::new(
            LEASEHOLD_ERR_EXHAUSTED,
            format!("a socket for the log: {error}"),
        ));
    }
    // SAFETY: both were made just now, and belong to nobody else.
    let [ours, theirs] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
    let number = Birth::here().number() << 32 | u64::from(ours.as_raw_fd().cast_unsigned());
    set(Some(write), std::ptr::without_provenance_mut(number as usize), level)?;
    let _kept = ours.into_raw_fd();
    Ok(theirs.into_raw_fd())
}

/// Closes the end to write to, in which no thread is any more.
pub(super) fn close(user_data: *mut c_void) {
    // SAFETY: it comes from `open`, and nobody writes to it any more.
    descriptor(user_data).into_iter().for_each(|ours| drop(unsafe { OwnedFd::from_raw_fd(ours) }));
}

pub(super) unsafe extern "C" fn write(
    user_data: *mut c_void,
    level: leasehold_log_level,
    message: *const c_char,
) {
    let Some(ours) = descriptor(user_data) else { return };
    // SAFETY: the message is a string, valid during this call.
    let message = unsafe { CStr::from_ptr(message) }.to_bytes();
    let mut record = format!("{level}").into_bytes();
    record.extend_from_slice(&message[..message.len().min(LEASEHOLD_LOG_RECORD - record.len())]);
    // One that does not fit is dropped: what is logged must not wait for who reads it.
    // SAFETY: the bytes are there during the call.
    unsafe { libc::send(ours, record.as_ptr().cast(), record.len(), libc::MSG_NOSIGNAL) };
}

/// None in a forked child, in which the number may be that of another file by now.
fn descriptor(user_data: *mut c_void) -> Option<RawFd> {
    let number = user_data.addr() as u64;
    (number >> 32 == Birth::here().number()).then_some(number as u32 as RawFd)
}
