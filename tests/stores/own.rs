//! Stores whose servers are theirs alone, so that these may stand still and crash.

use kit::{Server, process};
use nix::sys::signal::Signal;

use super::Store;

/// Nothing that they have answered is lost when they crash: each waits for its disk, or what is one here.
impl Store {
    pub fn own_redis() -> Store {
        let kept = ["--appendonly", "yes", "--appendfsync", "always"];
        let builder = Server::builder().args(&kept).inside("/dev/shm".as_ref());
        Store::Redis(Box::new(builder.start()))
    }

    #[cfg(feature = "postgres")]
    pub fn own_postgres() -> Store {
        Store::postgres_in(Some(kit::Postgres::start_with(&[])))
    }

    /// One that waits for a standby, too.
    #[cfg(feature = "postgres")]
    pub fn postgres_with_standby() -> Store {
        let mut store = Store::own_postgres();
        if let Store::Postgres(database) = &mut store {
            let standby = database.server().standby();
            database.server().wait_for_standbys("*");
            database.standby = Some(standby);
        }
        store
    }

    /// One that waits for a replica, too, however long that takes.
    #[cfg(feature = "mysql")]
    pub fn mysql_with_replica() -> (Store, kit::Mysql) {
        let [server, replica] = kit::Mysql::semi_sync(600_000);
        (Store::mysql_in(Some(server)), replica)
    }

    #[cfg(feature = "mysql")]
    pub fn own_mysql() -> Store {
        Store::mysql_in(Some(kit::Mysql::start()))
    }

    #[cfg(feature = "zookeeper")]
    pub fn own_zookeeper() -> Store {
        Store::zookeeper_in(Some(kit::Zookeeper::start_with(&[], &[])))
    }

    #[cfg(feature = "etcd")]
    pub fn own_etcd() -> Store {
        Store::etcd()
    }

    /// The server does nothing until it goes on.
    pub fn stop(&self) {
        process::signal_family(self.pid(), Signal::SIGSTOP);
    }

    pub fn go_on(&self) {
        process::signal_family(self.pid(), Signal::SIGCONT);
    }

    pub fn has_its_own_server(&self) -> bool {
        match self {
            Store::Redis(_) => true,
            #[cfg(feature = "postgres")]
            Store::Postgres(database) => database.own.is_some(),
            #[cfg(feature = "mysql")]
            Store::Mysql(database) => database.own.is_some(),
            #[cfg(feature = "zookeeper")]
            Store::Zookeeper(chroot) => chroot.own.is_some(),
            #[cfg(feature = "etcd")]
            Store::Etcd(_) => true,
            _ => false,
        }
    }

    fn pid(&self) -> u32 {
        match self {
            Store::Redis(server) => server.pid().as_raw().cast_unsigned(),
            #[cfg(feature = "postgres")]
            Store::Postgres(database) => database.own.as_ref().expect(OWN).pid(),
            #[cfg(feature = "mysql")]
            Store::Mysql(database) => database.own.as_ref().expect(OWN).pid(),
            #[cfg(feature = "zookeeper")]
            Store::Zookeeper(chroot) => chroot.own.as_ref().expect(OWN).pid(),
            #[cfg(feature = "etcd")]
            Store::Etcd(etcd) => etcd.process(0).pid().as_raw().cast_unsigned(),
            _ => panic!("{OWN}"),
        }
    }

    pub fn crash(&mut self) {
        match self {
            Store::Redis(server) => server.kill(),
            #[cfg(feature = "postgres")]
            Store::Postgres(database) => database.own.as_mut().expect(OWN).crash(),
            #[cfg(feature = "mysql")]
            Store::Mysql(database) => database.own.as_mut().expect(OWN).crash(),
            #[cfg(feature = "zookeeper")]
            Store::Zookeeper(chroot) => chroot.own.as_mut().expect(OWN).crash(),
            #[cfg(feature = "etcd")]
            Store::Etcd(etcd) => etcd.kill(0),
            _ => panic!("{OWN}"),
        }
    }

    /// With what it had.
    pub fn start_again(&mut self) {
        match self {
            Store::Redis(server) => server.start_again(),
            #[cfg(feature = "postgres")]
            Store::Postgres(database) => database.own.as_mut().expect(OWN).start_again(),
            #[cfg(feature = "mysql")]
            Store::Mysql(database) => database.own.as_mut().expect(OWN).start_again(),
            #[cfg(feature = "zookeeper")]
            Store::Zookeeper(chroot) => chroot.own.as_mut().expect(OWN).start_again(),
            #[cfg(feature = "etcd")]
            Store::Etcd(etcd) => etcd.start_again(0),
            _ => panic!("{OWN}"),
        }
    }
}

const OWN: &str = "it has one server, which is its own";
