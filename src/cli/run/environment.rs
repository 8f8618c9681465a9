//! The environment of the command: what the user's shell had. `cargo leasehold` puts cargo and
//! rustup in between, and what those two add for the programs that they build would change how
//! the command behaves: the toolchain of any `cargo` in it, and the libraries of any program.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

type Variables = BTreeMap<OsString, OsString>;

/// How the variables begin that cargo sets for a program that it runs, and rustup for a cargo that
/// it runs. (CARGO_HOME and RUSTUP_HOME say where those are anyway.)
const ADDED: [&str; 4] = ["CARGO_MANIFEST_", "CARGO_PKG_", "RUST_RECURSION_COUNT", SOURCE];
const SOURCE: &str = "RUSTUP_TOOLCHAIN_SOURCE";

/// Gives the command the variables of this process without what cargo and rustup added.
pub(super) fn clean(command: &mut Command) {
    let program = env::current_exe().unwrap_or_default();
    command.env_clear().envs(cleaned(env::vars_os().collect(), &program));
}

fn cleaned(mut variables: Variables, program: &Path) -> Variables {
    // With another package's name, cargo ran our caller, and these are the caller's variables.
    let ours = Some(OsStr::new(env!("CARGO_PKG_NAME")));
    let Some(cargo) = variables.get(OsStr::new("CARGO")).cloned() else { return variables };
    if variables.get(OsStr::new("CARGO_PKG_NAME")).map(OsString::as_os_str) != ours {
        return variables;
    }
    // rustup says where it has the toolchain from: the user's own variable stays.
    let is_own = variables.get(OsStr::new(SOURCE)).is_some_and(|source| source == "env");
    variables.retain(|name, _| {
        let is_added = ADDED.iter().any(|added| name.as_bytes().starts_with(added.as_bytes()));
        !(is_added || name == "CARGO" || name == "RUSTUP_TOOLCHAIN" && !is_own)
    });
    if let Some((name, paths)) = variables.remove_entry(OsStr::new("LD_LIBRARY_PATH")) {
        let left = libraries(&paths, Path::new(&cargo), program);
        variables.extend(left.map(|left| (name, left)));
    }
    variables
}

/// The search path without the toolchain's libraries and the folder that we were built in.
fn libraries(paths: &OsStr, cargo: &Path, program: &Path) -> Option<OsString> {
    let toolchain = cargo.ancestors().nth(2).map(|root| root.join("lib"));
    let added = [toolchain.as_deref(), program.parent()];
    let is_added = |path: &Path| added.iter().flatten().any(|added| path.starts_with(added));
    let left: Vec<_> = env::split_paths(paths).filter(|path| !is_added(path)).collect();
    env::join_paths(left).ok().filter(|left| !left.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: &str = "/src/leasehold/target/release/leasehold";

    fn after(variables: &[(&str, &str)]) -> Vec<String> {
        let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
        let left = cleaned(variables.collect(), Path::new(PROGRAM)).into_iter();
        left.map(|(name, value)| format!("{}={}", name.display(), value.display())).collect()
    }

    fn by_cargo<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let added = [
            ("CARGO", "/home/u/.rustup/toolchains/stable/bin/cargo"),
            ("CARGO_HOME", "/home/u/.cargo"),
            ("CARGO_MANIFEST_DIR", "/src/leasehold"),
            ("CARGO_PKG_NAME", "leasehold"),
            ("CARGO_PKG_VERSION_MAJOR", "0"),
            (
                "LD_LIBRARY_PATH",
                "/src/leasehold/target/release:/src/leasehold/target/release/deps:\
                 /home/u/.rustup/toolchains/stable/lib/rustlib/x86_64/lib:\
                 /home/u/.rustup/toolchains/stable/lib",
            ),
            ("RUSTUP_HOME", "/home/u/.rustup"),
            ("RUSTUP_TOOLCHAIN", "stable"),
            ("RUSTUP_TOOLCHAIN_SOURCE", "default"),
            ("RUST_RECURSION_COUNT", "1"),
            ("HOME", "/home/u"),
        ];
        added
            .into_iter()
            .filter(|(name, _)| more.iter().all(|(other, _)| other != name))
            .chain(more.iter().copied())
            .collect()
    }

    #[test]
    fn nothing_of_cargo_and_rustup_is_left() {
        let homes = ["CARGO_HOME=/home/u/.cargo", "HOME=/home/u", "RUSTUP_HOME=/home/u/.rustup"];
        assert_eq!(after(&by_cargo(&[])), homes);
    }

    #[test]
    fn what_the_user_has_set_stays() {
        let set = [
            ("CARGO_HOME", "/opt/cargo"),
            ("CARGO_TARGET_DIR", "/tmp/t"),
            (
                "LD_LIBRARY_PATH",
                "/src/leasehold/target/release:/opt/lib:/home/u/.rustup/toolchains/stable/lib",
            ),
            ("RUSTUP_TOOLCHAIN", "nightly"),
            ("RUSTUP_TOOLCHAIN_SOURCE", "env"),
        ];
        assert_eq!(
            after(&by_cargo(&set)),
            [
                "CARGO_HOME=/opt/cargo",
                "CARGO_TARGET_DIR=/tmp/t",
                "HOME=/home/u",
                "LD_LIBRARY_PATH=/opt/lib",
                "RUSTUP_HOME=/home/u/.rustup",
                "RUSTUP_TOOLCHAIN=nightly"
            ]
        );
    }

    #[test]
    fn inside_of_another_package_everything_stays() {
        let variables = by_cargo(&[("CARGO_PKG_NAME", "other")]);
        assert_eq!(after(&variables).len(), variables.len());
        assert_eq!(after(&[("CARGO_HOME", "/x"), ("LD_LIBRARY_PATH", "/y")]).len(), 2);
    }
}
