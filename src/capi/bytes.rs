//! Bytes and numbers that come in from C, and strings that go out.

use std::ffi::c_char;
use std::time::Duration;

use super::failure::{Failure, bad, panic_point};

/// As a length, says that the bytes end with a zero byte.
pub(super) const NUL: usize = usize::MAX;

/// As a time in milliseconds, says that there is no limit.
pub const LEASEHOLD_FOREVER: i64 = i64::MAX;

/// The longest URL, token or duration that is looked at.
pub(super) const MAX_TEXT: usize = 64 * 1024;

/// The bytes of an argument, no more than `most` of them: too long ones are refused unread.
pub(super) fn bytes<'a>(
    what: &str,
    start: *const c_char,
    length: usize,
    most: usize,
) -> Result<&'a [u8], Failure> {
    if start.is_null() {
        if length == 0 {
            return Ok(&[]);
        }
        return Err(bad(format!("the {what} is NULL")));
    }
    let length = match length {
        // SAFETY: by the contract of every function they end with zero; none behind it is read.
        NUL => unsafe { libc::strnlen(start, most + 1) },
        length => length,
    };
    if length > most {
        return Err(bad(format!("the {what} has more than {most} bytes")));
    }
    // SAFETY: by the contract of every function there are so many, which nobody changes during the
    // call; `most` keeps the length far below isize::MAX.
    Ok(unsafe { std::slice::from_raw_parts(start.cast(), length) })
}

/// The same where it must be text.
pub(super) fn text<'a>(what: &str, from: *const c_char, length: usize) -> Result<&'a str, Failure> {
    // The bytes are not repeated: a URL may hold a password.
    std::str::from_utf8(bytes(what, from, length, MAX_TEXT)?)
        .map_err(|_| bad(format!("the {what} is not UTF-8")))
}

/// A span of time; a negative one can never be meant.
pub(super) fn span(what: &str, ms: i64) -> Result<Duration, Failure> {
    let ms =
        u64::try_from(ms).map_err(|_| bad(format!("the {what} is {ms} ms; 0 is the least")))?;
    Ok(Duration::from_millis(ms))
}

/// The same where [`LEASEHOLD_FOREVER`] is allowed, and is `None`.
pub(super) fn limit(what: &str, ms: i64) -> Result<Option<Duration>, Failure> {
    if ms == LEASEHOLD_FOREVER { Ok(None) } else { span(what, ms).map(Some) }
}

/// Whole milliseconds of a span, none more than there are.
pub(super) fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

/// A sentence for C: whatever it repeats, no zero byte ends it early and no line end breaks it.
pub(super) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() {
            true => line.extend(c.escape_debug()),
            false => line.push(c),
        }
    }
    line
}

/// A string that C may borrow while its owner is there. It may hold zero bytes; one more follows.
pub(super) struct CBytes(Box<[u8]>);

impl CBytes {
    pub(super) fn new(bytes: impl AsRef<[u8]>) -> CBytes {
        panic_point();
        CBytes([bytes.as_ref(), &[0]].concat().into())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.0.split_last().map_or(&[], |(_, bytes)| bytes)
    }

    pub(super) fn start(&self) -> *const c_char {
        self.0.as_ptr().cast()
    }
}
