//! Leasehold from other languages, and other libraries: each is built when it is asked for, from
//! what is in this repository, and with the tools that are there.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::ValueEnum;

use crate::also::Also;
use crate::measure::Outcome;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Beside {
    /// Leasehold from C; needs make and cc
    C,
    /// Leasehold from Java; needs mvn
    Java,
    /// Leasehold from Python; needs make
    Python,
    /// redis-py's Lock; installs it where Python lacks it
    RedisPy,
    /// redsync; needs go, and fetches it
    Redsync,
    /// Redisson's RLock; needs mvn, which fetches it
    Redisson,
}

/// Where the benches are, and where they build.
const BENCHES: &str = env!("CARGO_MANIFEST_DIR");
const BUILT: &str = env!("CARGO_TARGET_TMPDIR");

impl Beside {
    /// Builds it.
    pub(crate) fn program(self) -> Outcome<Also> {
        let built = |name: &str| Path::new(BUILT).join(name);
        let (name, command) = match self {
            Beside::C => {
                let (prefix, cycle) = (library()?, built("cycle"));
                let flags = [
                    format!("-I{}/include", prefix.display()),
                    format!("-L{}/lib", prefix.display()),
                    format!("-Wl,-rpath,{}/lib", prefix.display()),
                    "-lleasehold".to_owned(),
                ];
                let source = format!("{BENCHES}/c/cycle.c");
                run(Command::new("cc").args(["-O2", &source, "-o"]).arg(&cycle).args(flags))?;
                ("C", quoted(&cycle))
            }
            Beside::Java => {
                let project = format!("{BENCHES}/../bindings/java");
                let plainly = ["--batch-mode", "-Dstyle.color=never", "--quiet"];
                let what = ["-f", &project, "-DskipTests", "package"];
                run(Command::new("mvn").args(plainly).args(what))?;
                ("Java", quoted(&Path::new(BENCHES).join("java/cycle")))
            }
            Beside::Python => {
                let library = library()?.join("lib/libleasehold.so");
                let modules = Path::new(BENCHES).join("../bindings/python/src");
                let (library, modules) = (quoted(&library), quoted(&modules));
                let program = quoted(&Path::new(BENCHES).join("python/cycle.py"));
                let set = format!("LEASEHOLD_LIBRARY={library} PYTHONPATH={modules}");
                ("Python", format!("env {set} python3 {program}"))
            }
            Beside::RedisPy => {
                let program = quoted(&Path::new(BENCHES).join("python/theirs.py"));
                ("redis-py", format!("{} {program}", quoted(&python_with_redis()?)))
            }
            Beside::Redsync => {
                let program = built("redsync");
                let folder = format!("{BENCHES}/go");
                run(Command::new("go").args(["build", "-o"]).arg(&program).current_dir(folder))?;
                ("redsync", quoted(&program))
            }
            Beside::Redisson => {
                let [path, class] = java("redisson", "Redisson")?;
                ("Redisson", format!("java -XX:+UseSerialGC -cp '{path}' {class}"))
            }
        };
        Ok(Also::new(name, command))
    }

    /// Whether it can lock on several independent servers.
    pub(crate) fn knows_quorums(self) -> bool {
        self != Beside::RedisPy && self != Beside::Redisson
    }

    /// Whether it finds a master through Sentinels, and its way in a Cluster, by our URLs.
    pub(crate) fn knows_groups(self) -> bool {
        !self.hands_over()
    }

    /// Whether it is another library, and knows what `pass` asks.
    pub(crate) fn hands_over(self) -> bool {
        matches!(self, Beside::RedisPy | Beside::Redsync | Beside::Redisson)
    }
}

/// The C library, as `make install` leaves it.
fn library() -> Outcome<PathBuf> {
    let prefix = Path::new(BUILT).join("prefix");
    let set = format!("PREFIX={}", prefix.display());
    run(Command::new("make").args(["-s", "-C", &format!("{BENCHES}/.."), "install", &set]))?;
    Ok(prefix)
}

/// Compiles a class with what Maven fetches for it; the class path, and its name.
pub(crate) fn java(folder: &str, class: &str) -> Outcome<[String; 2]> {
    let (source, classes) = (format!("{BENCHES}/java/{folder}"), Path::new(BUILT).join(folder));
    std::fs::create_dir_all(&classes)?;
    let list = classes.join("classpath");
    if !list.is_file() {
        let mut maven = Command::new("mvn");
        maven.args(["-q", "dependency:build-classpath", "-f", &source]);
        maven.arg(format!("-Dmdep.outputFile={}", list.display()));
        run(&mut maven).map_err(|error| format!("Maven could not fetch {class}: {error}"))?;
    }
    let path = format!("{}:{}", std::fs::read_to_string(&list)?, classes.display());
    let mut javac = Command::new("javac");
    run(javac.args(["-cp", &path, "-d"]).arg(&classes).arg(format!("{source}/{class}.java")))?;
    Ok([path, class.to_owned()])
}

fn python_with_redis() -> Outcome<PathBuf> {
    let has_redis = |python: &Path| {
        let tried =
            Command::new(python).args(["-c", "import redis"]).stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    };
    let (system, own) = (PathBuf::from("python3"), Path::new(BUILT).join("venv"));
    let python = own.join("bin/python");
    if has_redis(&system) {
        return Ok(system);
    }
    if !has_redis(&python) {
        run(Command::new("python3").args(["-m", "venv"]).arg(&own))?;
        run(Command::new(&python).args(["-m", "pip", "install", "--quiet", "redis"]))?;
    }
    Ok(python)
}

/// What it prints is no figure of ours.
pub(crate) fn run(command: &mut Command) -> Outcome<()> {
    let failed = |what: String, program: &Command| {
        format!("{}: {what}", program.get_program().to_string_lossy())
    };
    match command.stdout(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(failed(status.to_string(), command).into()),
        Err(error) => Err(failed(error.to_string(), command).into()),
    }
}

/// For the shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display())
}
