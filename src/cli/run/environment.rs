//! The environment of the command: what the user's shell had. `cargo leasehold` puts cargo and
//! rustup in between, and what those two add for the programs that they build would change how
//! the command behaves: the toolchain of any `cargo` in it, and the libraries of any program.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

type Variables = BTreeMap<OsString, OsString>;

/// What cargo sets for a program that it runs, and rustup for a cargo that it runs.
const ADDED: [&str; 5] = [
    "CARGO",
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_PATH",
    "RUST_RECURSION_COUNT",
    TOOLCHAIN_SOURCE,
];
const ADDED_PREFIX: &str = "CARGO_PKG_";
const TOOLCHAIN: &str = "RUSTUP_TOOLCHAIN";
const TOOLCHAIN_SOURCE: &str = "RUSTUP_TOOLCHAIN_SOURCE";
const LIBRARIES: &str = "LD_LIBRARY_PATH";

/// Takes out of the command's environment what cargo and rustup added, if they started us.
pub(super) fn clean(command: &mut Command) {
    let variables: Variables = env::vars_os().collect();
    let program = env::current_exe().unwrap_or_default();
    for (name, value) in changes(&variables, &program) {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
}

/// The variables to set, or to remove where there is no value.
fn changes(variables: &Variables, program: &Path) -> Vec<(OsString, Option<OsString>)> {
    let get = |name: &str| variables.get(OsStr::new(name));
    // Another package's name there: our caller was run by cargo, not we, and these are his.
    let Some(cargo) = get("CARGO").map(Path::new) else { return Vec::new() };
    if get("CARGO_PKG_NAME").is_none_or(|name| name != env!("CARGO_PKG_NAME")) {
        return Vec::new();
    }
    let mut gone: Vec<OsString> = variables
        .keys()
        .filter(|name| {
            ADDED.iter().any(|added| *name == added)
                || name.as_bytes().starts_with(ADDED_PREFIX.as_bytes())
        })
        .cloned()
        .collect();
    // rustup says where it has the toolchain from: the user's own variable stays.
    if get(TOOLCHAIN_SOURCE).is_none_or(|source| source != "env") {
        gone.push(TOOLCHAIN.into());
    }
    // Set by rustup to where they are anyway; anything else is the user's.
    let home = get("HOME").map(PathBuf::from);
    for (name, place) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
        let usual = home.as_ref().map(|home| home.join(place).into_os_string());
        if get("RUST_RECURSION_COUNT").is_some()
            && get(name).is_some()
            && get(name) == usual.as_ref()
        {
            gone.push(name.into());
        }
    }
    let mut changes: Vec<_> = gone.into_iter().map(|name| (name, None)).collect();
    if let Some(paths) = get(LIBRARIES) {
        changes.push((LIBRARIES.into(), libraries(paths, cargo, program)));
    }
    changes
}

/// The search path without the toolchain's libraries and the folder that we were built in.
fn libraries(paths: &OsStr, cargo: &Path, program: &Path) -> Option<OsString> {
    let toolchain = cargo.ancestors().nth(2).map(|root| root.join("lib"));
    let built = program.parent();
    let added = |path: &PathBuf| {
        toolchain.as_ref().is_some_and(|lib| path.starts_with(lib))
            || built.is_some_and(|built| path.starts_with(built))
    };
    let left: Vec<_> = env::split_paths(paths).filter(|path| !added(path)).collect();
    env::join_paths(left).ok().filter(|left| !left.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: &str = "/src/leasehold/target/release/leasehold";

    fn after(variables: &[(&str, &str)]) -> Vec<String> {
        let mut variables: Variables =
            variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
        for (name, value) in changes(&variables, Path::new(PROGRAM)) {
            match value {
                Some(value) => variables.insert(name, value),
                None => variables.remove(&name),
            };
        }
        let line =
            |(name, value): (OsString, OsString)| format!("{}={}", name.display(), value.display());
        variables.into_iter().map(line).collect()
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
        assert_eq!(after(&by_cargo(&[])), ["HOME=/home/u"]);
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
