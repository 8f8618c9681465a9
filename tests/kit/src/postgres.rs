//! Private PostgreSQL servers on free loopback ports, and databases of one that a test program shares:
//! to make a server takes seconds, and a database a tenth of one.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::host::{self, free_port, memory};
use super::process::{Process, kill_family};
use super::wait::eventually;

const LIMIT: Duration = Duration::from_secs(60);
const USER: &str = "postgres";

/// So long a server may take to end.
const PATIENCE: Duration = Duration::from_secs(2);

/// With all of its processes.
const END: &str = r#"while [ -e "$1/postmaster.pid" ] && kill -QUIT "$(head -n 1 "$1/postmaster.pid")"
    do sleep 0.1; done"#;

pub struct Postgres {
    dir: PathBuf,
    port: u16,
    /// Absent once it was killed.
    server: Option<Child>,
    watcher: Child,
}

impl Postgres {
    /// Whether there is one to start.
    pub fn is_here() -> bool {
        program("postgres").is_some()
    }

    /// Answers as soon as it is written down: how long a disk takes is not judged here.
    pub fn start() -> Postgres {
        Postgres::start_with(&["fsync=off", "full_page_writes=off"])
    }

    /// With these settings.
    pub fn start_with(settings: &[&str]) -> Postgres {
        Postgres::start_in(&memory(), settings)
    }

    /// With its files in this folder, on a disk say.
    pub fn start_in(parent: &Path, settings: &[&str]) -> Postgres {
        let (dir, watcher) = Postgres::place(parent);
        host::copy_made("postgres", &dir, |dir| {
            own_alone(dir);
            let mut initdb = as_server("initdb");
            initdb.args(["--no-sync", "--no-instructions", "--auth=trust", "--username=postgres"]);
            initdb.args(["--encoding=UTF8", "--locale=C", "--pgdata"]).arg(dir).current_dir("/");
            let made = initdb.output().unwrap();
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        });
        let settings = settings.iter().map(|line| format!("{line}\n")).collect::<String>();
        let ours = format!(
            "listen_addresses = '127.0.0.1'\nunix_socket_directories = '{}'\n\
             max_connections = 400\nautovacuum = off\nshared_buffers = 16MB\n{settings}",
            dir.display()
        );
        let file = dir.join("postgresql.conf");
        fs::write(&file, fs::read_to_string(&file).unwrap() + &ours).unwrap();
        let mut postgres = Postgres { dir, port: free_port(), server: None, watcher };
        postgres.launch();
        postgres
    }

    /// A folder for one, and who removes it.
    fn place(parent: &Path) -> (PathBuf, Child) {
        let (dir, watcher) = host::place(parent, "postgres", END);
        own_alone(&dir);
        (dir, watcher)
    }

    /// A standby of this one.
    pub fn standby(&self) -> Postgres {
        self.standby_at(free_port())
    }

    /// The same at a port that another one has left.
    pub fn standby_at(&self, port: u16) -> Postgres {
        let (dir, watcher) = Postgres::place(&memory());
        let mut copy = as_server("pg_basebackup");
        copy.args(["-h", "127.0.0.1", "-U", "postgres", "-R", "-c", "fast", "--no-sync", "-p"]);
        copy.arg(self.port.to_string()).arg("-D").arg(&dir).current_dir("/");
        let copied = copy.output().unwrap();
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
        let mut standby = Postgres { dir, port, server: None, watcher };
        standby.launch();
        standby
    }

    /// From now on commits wait for standbys of these names, once one is there; for none, if that is empty.
    pub fn wait_for_standbys(&self, names: &str) {
        self.sql("postgres", &format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'"));
        self.sql("postgres", "SELECT pg_reload_conf()");
        let waits =
            "SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')";
        eventually(LIMIT, || (self.sql("postgres", waits) != "0") != names.is_empty());
        // Commits go by what the process that does this has read.
        self.sql("postgres", "CHECKPOINT");
    }

    /// This standby hears nothing of its primary any more. Returns how it found that.
    pub fn cut_off(&self) -> String {
        let found = self.sql("postgres", "SHOW primary_conninfo");
        self.follow("");
        let hears = "SELECT count(*) FROM pg_stat_wal_receiver";
        eventually(LIMIT, || self.sql("postgres", hears) == "0");
        found
    }

    /// As it was found before, or nobody.
    pub fn follow(&self, primary: &str) {
        let primary = primary.replace('\'', "''");
        self.sql("postgres", &format!("ALTER SYSTEM SET primary_conninfo = '{primary}'"));
        self.sql("postgres", "SELECT pg_reload_conf()");
    }

    /// A PgBouncer before it, which lends a connection for each transaction, and its port.
    pub fn pooler(&self) -> (Process, u16) {
        let port = free_port();
        let file = self.dir.join(format!("pooler-{port}.ini"));
        let lines = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=postgres\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
             pool_mode = transaction\ndefault_pool_size = 3\nmax_client_conn = 200\n",
            self.port
        );
        fs::write(&file, lines).unwrap();
        host::own(&file, USER);
        let mut command = as_server("pgbouncer");
        command.arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let pooler = Process::spawn(&mut command);
        eventually(LIMIT, || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
        (pooler, port)
    }

    /// For connections from now on; its user has to be able to read the key.
    pub fn show_certificate(&self, certificate: &Path, key: &Path) {
        for (from, to) in [(certificate, "shown.pem"), (key, "shown.key")] {
            let to = self.dir.join(to);
            fs::copy(from, &to).unwrap();
            fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).unwrap();
            host::own(&to, USER);
        }
        for line in ["ssl_cert_file = 'shown.pem'", "ssl_key_file = 'shown.key'", "ssl = on"] {
            self.sql("postgres", &format!("ALTER SYSTEM SET {line}"));
        }
        self.sql("postgres", "SELECT pg_reload_conf()");
        // The first process of the server reads it, and each connection is made by that.
        std::thread::sleep(Duration::from_millis(300));
    }

    /// One that all tests of this program share; it ends with the program.
    pub fn shared() -> &'static Postgres {
        static SHARED: OnceLock<Postgres> = OnceLock::new();
        SHARED.get_or_init(Postgres::start)
    }

    /// A new and empty database, and its name.
    pub fn database(&self) -> String {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let name = format!("test{}", LAST.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name} TEMPLATE template0"));
        name
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn pid(&self) -> u32 {
        self.server.as_ref().expect("it runs").id()
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// What a database answers to some statements, without names of columns.
    #[track_caller]
    pub fn sql(&self, database: &str, text: &str) -> String {
        self.try_sql(database, text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    pub fn try_sql(&self, database: &str, text: &str) -> Result<String, String> {
        Postgres::sql_at(self.port, database, text)
    }

    /// The same through a pooler, or while the server may be stopped.
    pub fn sql_at(port: u16, database: &str, text: &str) -> Result<String, String> {
        let mut psql = Command::new(program("psql").expect("psql is where postgres is"));
        psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-U", "postgres"]);
        psql.args(["-p", &port.to_string(), "-d", database, "-c", text]);
        host::printed(&mut psql)
    }

    /// Without a word to anybody, as a crash of the machine does it but for the disk.
    pub fn crash(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = kill(Pid::from_raw(server.id().cast_signed()), Signal::SIGQUIT);
            // One that is told so while it starts may wait for a process that it has just begun, for ever.
            let told = Instant::now();
            while server.try_wait().unwrap().is_none() {
                if told.elapsed() > PATIENCE {
                    kill_family(server.id());
                    server.wait().unwrap();
                    return;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }

    /// On the same port, with what it had.
    pub fn start_again(&mut self) {
        self.launch();
    }

    fn launch(&mut self) {
        let path = self.dir.join("log");
        let log = File::create(&path).unwrap();
        let mut command = as_server("postgres");
        command.arg("-D").arg(&self.dir).args(["-p", &self.port.to_string()]).current_dir("/");
        // A standby has the settings of its primary, whose folder may be gone.
        command.arg("-k").arg(&self.dir);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let mut server = command.spawn().unwrap();
        host::await_launch(&mut server, &path, |log| log.contains("ready to accept"));
        self.server = Some(server);
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        drop(self.watcher.stdin.take());
        if let Some(mut server) = self.server.take() {
            let _ = server.wait();
        }
        let _ = self.watcher.wait();
    }
}

/// It refuses a folder that others can read.
fn own_alone(dir: &Path) {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).unwrap();
    host::own(dir, USER);
}

/// Debian keeps the programs of each version apart, and out of PATH.
fn program(name: &str) -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<_> = versions.map(|version| version.path().join("bin")).collect();
    folders.sort();
    folders.reverse();
    host::program(name, folders)
}

fn as_server(name: &str) -> Command {
    let program = program(name).unwrap_or_else(|| panic!("{name} of PostgreSQL is missing"));
    host::run_as(USER, program)
}
