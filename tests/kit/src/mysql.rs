//! Private MariaDB servers on free loopback ports, and databases of one that a test program shares: to
//! make a server takes seconds, and a database a moment.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::host::{self, free_port, memory};
use super::wait::eventually;

const USER: &str = "mysql";
const LIMIT: Duration = Duration::from_secs(60);

const END: &str = r#"while [ -e "$1/pid" ] && kill -KILL "$(cat "$1/pid")"; do sleep 0.1; done"#;

pub struct Mysql {
    dir: PathBuf,
    port: u16,
    settings: Vec<String>,
    /// Absent once it was killed.
    server: Option<Child>,
    watcher: Child,
}

impl Mysql {
    /// Whether there is one to start.
    pub fn is_here() -> bool {
        program("mariadbd").is_some()
    }

    pub fn start() -> Mysql {
        Mysql::start_with(&[])
    }

    /// With these options. In memory where there is such a file system: how long a disk takes is not
    /// judged here.
    pub fn start_with(settings: &[&str]) -> Mysql {
        Mysql::start_in(&memory(), settings)
    }

    /// With its files in this folder, on a disk say.
    pub fn start_in(parent: &Path, settings: &[&str]) -> Mysql {
        let mut mysql = Mysql::install(parent, settings);
        mysql.launch();
        mysql
    }

    /// One with TLS; its user has to be able to read the key.
    pub fn start_showing(certificate: &Path, key: &Path, settings: &[&str]) -> Mysql {
        let files = ["--ssl-cert=../shown.pem", "--ssl-key=../shown.key"];
        let mut mysql = Mysql::install(&memory(), &[&files, settings].concat());
        mysql.put_certificate(certificate, key);
        mysql.launch();
        mysql
    }

    fn install(parent: &Path, settings: &[&str]) -> Mysql {
        let (dir, watcher) = host::place(parent, "mysql", END);
        own(&dir);
        host::copy_made("mysql", &dir, |dir| {
            own(dir);
            let mut install = as_server("mariadb-install-db");
            install.args(["--no-defaults", "--auth-root-authentication-method=normal"]);
            install.args(["--skip-test-db", "--innodb-log-file-size=8M"]);
            install.arg(format!("--datadir={}", dir.join("data").display())).current_dir("/");
            // Else several that begin at once meet each other's temporary tables.
            install.arg(format!("--tmpdir={}", dir.display()));
            let made = install.output().unwrap();
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        });
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        Mysql { dir, port: free_port(), settings, server: None, watcher }
    }

    /// A replica of this one, which has to keep a log of its changes.
    pub fn replica(&self) -> Mysql {
        let replica = Mysql::start_with(&["--server-id=2", "--read-only=1", "--log-bin=log"]);
        let from = format!(
            "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={}, MASTER_USER='root', \
             MASTER_USE_GTID=slave_pos; START SLAVE",
            self.port
        );
        replica.sql("", &from);
        replica
    }

    /// One whose commits wait for a replica, for so many milliseconds, and the replica.
    pub fn semi_sync(timeout: u32) -> [Mysql; 2] {
        let primary = Mysql::start_with(&[
            "--log-bin=log",
            "--sync-binlog=1",
            "--rpl-semi-sync-master-enabled=1",
            "--rpl-semi-sync-master-wait-point=AFTER_SYNC",
            &format!("--rpl-semi-sync-master-timeout={timeout}"),
        ]);
        let replica = primary.replica();
        let on = "STOP SLAVE; SET GLOBAL rpl_semi_sync_slave_enabled = 1; START SLAVE";
        replica.sql("", on);
        let waits = "SELECT variable_value FROM information_schema.global_status
            WHERE variable_name = 'RPL_SEMI_SYNC_MASTER_CLIENTS'";
        eventually(LIMIT, || primary.sql("", waits) == "1");
        [primary, replica]
    }

    /// Two nodes of one Galera cluster.
    pub fn cluster() -> [Mysql; 2] {
        let ports = [(); 4].map(|()| free_port());
        let start = |ports, others: &str| {
            let settings = node(ports, others);
            Mysql::start_with(&settings.iter().map(String::as_str).collect::<Vec<_>>())
        };
        let first = start(&ports[..2], "gcomm://");
        [first, start(&ports[2..], &format!("gcomm://127.0.0.1:{}", ports[0]))]
    }

    /// Another one for connections from now on.
    pub fn show_certificate(&self, certificate: &Path, key: &Path) {
        self.put_certificate(certificate, key);
        self.sql("", "FLUSH SSL");
    }

    fn put_certificate(&self, certificate: &Path, key: &Path) {
        for (from, to) in [(certificate, "shown.pem"), (key, "shown.key")] {
            let to = self.dir.join(to);
            fs::copy(from, &to).unwrap();
            host::own(&to, USER);
        }
    }

    /// One that all tests of this program share; it ends with the program.
    pub fn shared() -> &'static Mysql {
        static SHARED: OnceLock<Mysql> = OnceLock::new();
        SHARED.get_or_init(Mysql::start)
    }

    /// A new and empty database, and its name.
    pub fn database(&self) -> String {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let name = format!("test{}", LAST.fetch_add(1, Ordering::Relaxed));
        self.sql("", &format!("CREATE DATABASE {name}"));
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

    pub fn socket(&self) -> PathBuf {
        self.dir.join("socket")
    }

    pub fn url(&self, database: &str) -> String {
        format!("mysql://root@127.0.0.1:{}/{database}", self.port)
    }

    /// What a database answers to some statements, without names of columns.
    #[track_caller]
    pub fn sql(&self, database: &str, text: &str) -> String {
        self.try_sql(database, text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    pub fn try_sql(&self, database: &str, text: &str) -> Result<String, String> {
        let mut client = Command::new(program("mariadb").expect("mariadb is where mariadbd is"));
        client.args(["--no-defaults", "-NB", "-u", "root", "-S"]).arg(self.socket());
        client.args(["-e", text]).args(Some(database).filter(|name| !name.is_empty()));
        host::printed(&mut client)
    }

    /// Without a word to anybody, as a crash of the machine does it but for the disk.
    pub fn crash(&mut self) {
        if let Some(mut server) = self.server.take() {
            // Its number may be another's soon.
            let _ = fs::remove_file(self.dir.join("pid"));
            let _ = server.kill();
            server.wait().unwrap();
        }
    }

    /// On the same port, with what it had.
    pub fn start_again(&mut self) {
        self.launch();
    }

    fn launch(&mut self) {
        let path = self.dir.join("log");
        let log = File::create(&path).unwrap();
        let mut command = as_server("mariadbd");
        let files = [("datadir", "data"), ("pid-file", "pid"), ("socket", "socket")];
        command.arg("--no-defaults");
        command
            .args(files.map(|(what, name)| format!("--{what}={}", self.dir.join(name).display())));
        command.args(["--bind-address=127.0.0.1", "--skip-name-resolve", "--max-connections=400"]);
        command.args(["--innodb-log-file-size=8M", "--innodb-buffer-pool-size=32M"]);
        command.args(["--performance-schema=0", "--server-id=1"]).args(&self.settings);
        command.arg(format!("--tmpdir={}", self.dir.display()));
        command.arg(format!("--port={}", self.port)).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let mut server = command.spawn().unwrap();
        // It writes the same there, later than this process may be killed.
        let pid = self.dir.join("pid");
        fs::write(&pid, format!("{}\n", server.id())).unwrap();
        host::own(&pid, USER);
        host::await_launch(&mut server, &path, |log| log.contains("ready for connections"));
        self.server = Some(server);
    }
}

impl Drop for Mysql {
    fn drop(&mut self) {
        self.crash();
        drop(self.watcher.stdin.take());
        let _ = self.watcher.wait();
    }
}

fn own(dir: &Path) {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    host::own(dir, USER);
}

/// The settings of one, for talking to the others and for getting what they have.
fn node(ports: &[u16], others: &str) -> Vec<String> {
    let at = |index: usize| format!("127.0.0.1:{}", ports[index]);
    // It gets all that it lacks, or a part of it: by itself it would take the port next to its first for
    // that, which may be another's. That one it wants for itself.
    let (talk, get, part) = (at(0), at(1), host::unkept_port());
    let own =
        format!("gmcast.listen_addr=tcp://{talk};ist.recv_addr=127.0.0.1:{part};gcache.size=32M");
    let settings = [
        "binlog-format=ROW".to_owned(),
        "innodb-autoinc-lock-mode=2".to_owned(),
        "wsrep-on=1".to_owned(),
        "wsrep-provider=/usr/lib/galera/libgalera_smm.so".to_owned(),
        format!("wsrep-node-address={talk}"),
        "wsrep-sst-method=rsync".to_owned(),
        format!("wsrep-sst-receive-address={get}"),
        format!("wsrep-provider-options={own}"),
        format!("wsrep-cluster-address={others}"),
    ];
    settings.into_iter().map(|setting| format!("--{setting}")).collect()
}

fn program(name: &str) -> Option<PathBuf> {
    host::program(name, Vec::new())
}

fn as_server(name: &str) -> Command {
    let program = program(name).unwrap_or_else(|| panic!("{name} of MariaDB is missing"));
    host::run_as(USER, program)
}
