//! Passwords, and the files that have them.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use crate::error::{Error, ErrorKind};

/// A password. It has no Debug and no Display that could write it anywhere.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(pub(crate) String);

/// A token of a cloud has some 2 KiB. What is longer is another file.
pub(super) const MOST_BYTES: u64 = 64 * 1024;

/// What a file has, without the line break at its end.
///
/// # Errors
/// [`ErrorKind::Auth`], with the reason and the file's name; [`ErrorKind::Exhausted`] if this process has no
/// descriptor left.
pub(super) fn read(file: &Path) -> Result<Secret, Error> {
    let refused = |why: &str| {
        Error::mended(
            ErrorKind::Auth,
            format!(
                "the password file {} {why}: write the password into it, or correct password_file=",
                file.display()
            ),
        )
    };
    let found = contents(file).map_err(|error| match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => Error::new(
            ErrorKind::Exhausted,
            format!("reading the password file {}: {error}", file.display()),
        ),
        _ => refused(&format!("cannot be read: {error}")),
    })?;
    let text = String::from_utf8(found).map_err(|_| refused("is not UTF-8"))?;
    let line =
        text.strip_suffix('\n').map_or(&*text, |line| line.strip_suffix('\r').unwrap_or(line));
    match line {
        "" => Err(refused("is empty")),
        line if line.contains(['\n', '\0']) => Err(refused("has more than a line of text")),
        line => Ok(Secret(line.to_owned())),
    }
}

fn contents(file: &Path) -> io::Result<Vec<u8>> {
    // A pipe would keep every login waiting.
    if !fs::metadata(file)?.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    let mut found = Vec::new();
    File::open(file)?.take(MOST_BYTES + 1).read_to_end(&mut found)?;
    if found.len() as u64 > MOST_BYTES {
        return Err(io::Error::other("it has more than 64 KiB"));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_a_line_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        for (text, password) in
            [("s3cret", "s3cret"), ("a b\n", "a b"), ("c\r\n", "c"), (" d ", " d ")]
        {
            fs::write(&file, text).unwrap();
            assert!(read(&file).unwrap() == Secret(password.to_owned()), "{text:?}");
        }
    }

    #[test]
    fn a_file_that_has_no_password_is_named_and_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("password");
        let long = "x".repeat(64 * 1024 + 1);
        for (text, why) in [
            (&b""[..], "is empty"),
            (b"\n", "is empty"),
            (b"hunter2\n\n", "has more than a line of text"),
            (b"hunter2\0", "has more than a line of text"),
            (b"hunter2\xff", "is not UTF-8"),
            (long.as_bytes(), "cannot be read: it has more than 64 KiB"),
        ] {
            fs::write(&file, text).unwrap();
            let error = read(&file).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Auth);
            let said = error.to_string();
            assert!(said.contains(&format!("{} {why}: write", file.display())), "{said}");
            assert!(!said.contains("hunter2"), "{said}");
        }
        for (path, why) in
            [(folder.path(), "it is no file"), (&folder.path().join("none"), "No such file")]
        {
            let said = read(path).err().unwrap().to_string();
            assert!(said.contains(why), "{said}");
        }
    }
}
