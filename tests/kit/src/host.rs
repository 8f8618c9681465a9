//! Where private servers of other makes have their files and ports, and as whom they run.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::unistd::User;
use socket2::{Domain, Socket, Type};

/// So long a server may take to be ready, on a machine with other things to do.
const LAUNCH: Duration = Duration::from_secs(120);

/// A folder in memory where there is such a file system.
pub(crate) fn memory() -> PathBuf {
    let shared = PathBuf::from("/dev/shm");
    if shared.is_dir() { shared } else { env::temp_dir() }
}

/// A folder for a server, and who removes it: a shell that waits for the end of its standard input, which
/// only this process holds open, and then ends the server as these lines say, the folder being $1.
/// Nobody drops what a test program shares.
pub(crate) fn place(parent: &Path, kind: &str, end: &str) -> (PathBuf, Child) {
    let dir = tempfile::Builder::new().prefix(&format!("leasehold-{kind}-")).tempdir_in(parent);
    let dir = dir.unwrap().keep();
    let script = format!("trap '' INT TERM HUP; read -r _\n{end}\nrm -rf \"$1\"");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, "sh"]).arg(&dir);
    shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    (dir, shell.spawn().unwrap())
}

/// Copies into a folder what `make` puts into an empty one, which is done once for all tests of this
/// process, or of all where KIT_TEMPLATES names a folder: to make a server takes far longer.
pub(crate) fn copy_made(kind: &str, to: &Path, make: impl FnOnce(&Path)) {
    // With who removes it, where it is this process's own.
    static MADE: Mutex<BTreeMap<String, (PathBuf, Option<Child>)>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let from = match made.get(kind) {
        Some((from, _)) => from.clone(),
        None => {
            let (folder, sweeper) = match env::var_os("KIT_TEMPLATES") {
                Some(folder) => (PathBuf::from(folder), None),
                None => {
                    let (folder, sweeper) = place(&memory(), &format!("new-{kind}"), "");
                    // The server's user goes through it.
                    fs::set_permissions(&folder, fs::Permissions::from_mode(0o711)).unwrap();
                    (folder, Some(sweeper))
                }
            };
            let from = folder.join(kind);
            if !from.exists() {
                let new = from.with_extension(std::process::id().to_string());
                fs::create_dir(&new).unwrap();
                make(&new);
                // Another process may have been faster.
                if fs::rename(&new, &from).is_err() {
                    fs::remove_dir_all(&new).unwrap();
                }
            }
            made.insert(kind.to_owned(), (from.clone(), sweeper));
            from
        }
    };
    drop(made);
    let copied = Command::new("cp").arg("-a").arg(from.join(".")).arg(to).status().unwrap();
    assert!(copied.success(), "{} cannot be copied", from.display());
}

/// Waits until a server that has just been spawned is ready, as its log tells.
pub(crate) fn await_launch(server: &mut Child, log: &Path, is_ready: impl Fn(&str) -> bool) {
    let start = Instant::now();
    loop {
        let log = fs::read_to_string(log).unwrap_or_default();
        if is_ready(&log) {
            return;
        }
        let ended = server.try_wait().unwrap();
        assert!(ended.is_none(), "{ended:?}: {log}");
        assert!(start.elapsed() < LAUNCH, "it is not ready: {log}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What a program prints, or why it has failed.
pub(crate) fn printed(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim().to_owned();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// A port that nobody else is given as long as this process lives: it stays bound and is not listened at.
/// Connecting is refused, a process that asks for any free port is given another, and a server that asks
/// for this one has it all the same, also when it is started again.
pub(crate) fn free_port() -> u16 {
    static KEPT: Mutex<Vec<Socket>> = Mutex::new(Vec::new());
    let socket = keep(Ipv4Addr::LOCALHOST, 0).expect("a port is free");
    let port = socket.local_addr().unwrap().as_socket_ipv4().unwrap().port();
    KEPT.lock().unwrap().push(socket);
    port
}

/// One for a server that wants it for itself: somebody else may be faster.
pub(crate) fn unkept_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// Binds this port, any if it is 0, as `free_port` says; absent when somebody has it.
pub(crate) fn keep(host: Ipv4Addr, port: u16) -> Option<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&SocketAddr::from((host, port)).into()).ok()?;
    Some(socket)
}

/// A program in one of these folders, in PATH, or where a distribution keeps servers.
pub(crate) fn program(name: &str, folders: Vec<PathBuf>) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = folders.into_iter().chain(env::split_paths(&path));
    let mut all = folders.chain([PathBuf::from("/usr/sbin")]).map(|folder| folder.join(name));
    all.find(|program| program.is_file())
}

/// The user of servers that refuse to run as root, if this is root.
fn other_user(name: &str) -> Option<User> {
    let is_root = nix::unistd::geteuid().is_root();
    let named = |name| User::from_name(name).ok().flatten();
    if is_root { named(name).or_else(|| named("nobody")) } else { None }
}

pub(crate) fn own(path: &Path, user: &str) {
    if let Some(owner) = other_user(user) {
        chown(path, Some(owner.uid.as_raw()), Some(owner.gid.as_raw())).unwrap();
    }
}

pub(crate) fn run_as(user: &str, program: PathBuf) -> Command {
    let Some(user) = other_user(user) else { return Command::new(program) };
    let mut command = Command::new("setpriv");
    // It becomes the program.
    command.arg(format!("--reuid={}", user.uid)).arg(format!("--regid={}", user.gid));
    command.arg("--clear-groups").arg(program);
    command
}
