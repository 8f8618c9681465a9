//! The locks that people write by hand: a program in C, built when it is needed.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use crate::also::Also;

/// SET NX PX, and a compare-and-delete by a script.
pub(crate) const RAW2: &str = "raw2";
/// The same with a fence, by INCR in a script that takes the lock.
pub(crate) const RAW2F: &str = "raw2f";

/// Those for so many servers; none where there is no C compiler, which is said.
pub(crate) fn programs(servers: usize) -> Vec<Also> {
    // A number from each of several servers is no fence.
    let names = if servers > 1 { &[RAW2][..] } else { &[RAW2, RAW2F] };
    let Some(program) = program() else { return Vec::new() };
    names.iter().map(|name| Also::new(name, format!("'{}' {name}", program.display()))).collect()
}

fn program() -> Option<&'static PathBuf> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let built = PROGRAM.get_or_init(|| build().map_err(|why| eprintln!("bench: {why}")).ok());
    built.as_ref()
}

fn build() -> Result<PathBuf, String> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/c/byhand.c");
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("byhand");
    // Another process may build it too, or run it.
    let new = program.with_extension(std::process::id().to_string());
    let without =
        |why: String| format!("without {RAW2} and {RAW2F}, as {source} was not built: {why}");
    let done = Command::new("cc").args(["-O2", "-o"]).arg(&new).arg(source).status();
    match done {
        Ok(status) if status.success() => {}
        Ok(status) => return Err(without(format!("cc: {status}"))),
        Err(error) => return Err(without(format!("cc: {error}"))),
    }
    std::fs::rename(&new, &program).map_err(|error| without(error.to_string()))?;
    Ok(program)
}
