//! A store with one server, and a proxy before it: promises that hold for each of them are written once.

use std::time::Duration;

use kit::scripts::{EXTEND, GIVE, TAKE};
use kit::{End, Mode, Proxy};
use leasehold::{Client, Holder, Lease};

use crate::stores::cannot::is_left_out;
use crate::stores::{LIMIT, Store, holder, ms};

pub(crate) struct Far {
    pub(crate) store: Store,
    pub(crate) proxy: Proxy,
    /// It goes round the proxy.
    pub(crate) near: Client,
}

/// A test that fails may leave a server of its own standing still, and a PostgreSQL that does cannot be
/// ended.
impl Drop for Far {
    fn drop(&mut self) {
        if self.store.has_its_own_server() {
            self.store.go_on();
        }
    }
}

/// What requests are told by.
#[derive(Clone, Copy)]
pub(crate) enum Said {
    Take,
    Give,
    Extend,
    /// Any that has this time in it, in ms.
    Time(u32),
}

impl Far {
    pub(crate) fn new(store: Store) -> Far {
        let proxy = Proxy::start(store.port().expect("it has one server"));
        Far { near: store.client(), store, proxy }
    }

    /// A client behind the proxy, with these parameters.
    pub(crate) fn open(&self, query: &str) -> Client {
        Client::open(&format!("{}?{query}", self.store.url_through(self.proxy.port()))).unwrap()
    }

    /// The same, and everything was said once. The store knows the name of the lock.
    pub(crate) fn warm(&self, query: &str) -> Client {
        // On a machine that is busy, more than once: some of these clients give a server little time.
        kit::eventually_some(LIMIT, || {
            let client = self.open(query);
            let lease = client.lock("lock").try_acquire().ok()??;
            lease.extend().and_then(|()| lease.release()).ok()?;
            Some(client).filter(|client| client.counters().unknown == 0)
        })
    }

    /// Has the proxy do this with these requests alone.
    pub(crate) fn set_only(&mut self, said: Said, mode: Mode) {
        let marks = match &self.store {
            Store::Redis(_) => vec![redis_mark(said)],
            #[cfg(feature = "mysql")]
            Store::Mysql(_) => vec![mysql_mark(said)],
            #[cfg(feature = "zookeeper")]
            Store::Zookeeper(chroot) => zookeeper_marks(said, &chroot.path),
            #[cfg(feature = "etcd")]
            Store::Etcd(_) => etcd_marks(said),
            _ => vec![postgres_mark(said)],
        };
        self.proxy.set_only_any(marks, mode);
    }

    /// All is well again. A network that heals resets a connection that has lost something, sooner or
    /// later; where all requests share it, what comes next would wait for that.
    pub(crate) fn heal(&mut self) {
        self.proxy.set(Mode::Pass);
        if self.shares_a_connection() {
            self.proxy.close_all(End::Reset);
        }
    }

    /// Where a lock was taken a moment ago, a try asks first who has it, and the loss of that answer
    /// leaves nothing unknown.
    pub(crate) fn looks_before_it_takes(&self) -> bool {
        match &self.store {
            #[cfg(feature = "mysql")]
            Store::Mysql(_) => true,
            _ => self.shares_a_connection(),
        }
    }

    /// The server says things that nobody has asked for. Where the proxy takes one of these for the reply
    /// that is to be lost, the request may go with its connection before it was carried out.
    pub(crate) fn may_lose_a_request_for_a_reply(&self) -> bool {
        match &self.store {
            #[cfg(feature = "etcd")]
            Store::Etcd(_) => true,
            _ => false,
        }
    }

    /// An etcd does not begin what arrives when it has seen the end of the connection.
    pub(crate) fn may_drop_what_arrives_late(&self) -> bool {
        self.may_lose_a_request_for_a_reply()
    }

    /// When the lock is free of one who has gone. An etcd counts whole seconds, and looks twice in each.
    pub(crate) fn free_after(&self, ttl: Duration) -> Duration {
        match &self.store {
            #[cfg(feature = "etcd")]
            Store::Etcd(_) => Duration::from_secs((ttl * 9 / 8).as_secs() + 1) + ms(500),
            _ => ttl,
        }
    }

    /// All threads of a client have one connection, and nothing on it comes before what is held up.
    fn shares_a_connection(&self) -> bool {
        match &self.store {
            #[cfg(feature = "zookeeper")]
            Store::Zookeeper(_) => true,
            _ => false,
        }
    }

    /// Has what was held on its way arrive, and waits until the server has done it.
    pub(crate) fn deliver(&mut self) {
        self.proxy.deliver();
        match &self.store {
            #[cfg(feature = "postgres")]
            Store::Postgres(database) => {
                let busy =
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                    AND pid <> pg_backend_pid() AND state = 'active'";
                kit::eventually(LIMIT, || database.sql(busy) == "0");
            }
            #[cfg(feature = "mysql")]
            Store::Mysql(database) => {
                let busy = "SELECT count(*) FROM information_schema.processlist
                    WHERE db = database() AND id <> connection_id() AND command = 'Query'";
                kit::eventually(LIMIT, || database.sql(busy) == "0");
            }
            _ => {}
        }
    }

    pub(crate) fn holder(&self, name: &str) -> Option<Holder> {
        holder(&self.near, name)
    }

    /// How long the lock stays taken.
    pub(crate) fn ttl_left(&self, name: &str) -> Duration {
        self.holder(name).map_or(Duration::ZERO, |holder| holder.ttl)
    }

    #[track_caller]
    pub(crate) fn assert_holds(&self, lease: &Lease) {
        assert!(lease.is_valid());
        let holder = self.holder("lock").expect("somebody has it");
        assert!(lease.token().to_string().starts_with(&holder.token_prefix));
        assert_eq!(holder.fence, Some(lease.fence()));
    }
}

fn redis_mark(said: Said) -> Vec<u8> {
    let script = match said {
        Said::Take => TAKE,
        Said::Give => GIVE,
        Said::Extend => EXTEND,
        Said::Time(time) => {
            let time = time.to_string();
            return format!("${}\r\n{time}\r\n", time.len()).into();
        }
    };
    kit::scripts::digest(script).into()
}

/// The ends of names of statements, and a number as it goes over the wire.
fn postgres_mark(said: Said) -> Vec<u8> {
    match said {
        Said::Take => b"_take\0".into(),
        Said::Give => b"_give\0".into(),
        Said::Extend => b"_extend\0".into(),
        Said::Time(time) => u64::from(time).to_be_bytes().into(),
    }
}

#[cfg(feature = "mysql")]
fn mysql_mark(said: Said) -> Vec<u8> {
    match said {
        Said::Take => b"UPDATE leasehold_lease SET\n    turn".into(),
        Said::Give => b"UPDATE leasehold_lease SET token = NULL".into(),
        Said::Extend => b"UPDATE leasehold_lease SET expiry".into(),
        Said::Time(time) => format!("{time}000").into(),
    }
}

/// Several changes at once (14), of which the first one makes a node (15), removes one (2) or sets it (5);
/// or one that sets the node of a holder, of which the name has four or five letters.
#[cfg(feature = "zookeeper")]
fn zookeeper_marks(said: Said, chroot: &str) -> Vec<Vec<u8>> {
    let several = |first| [&[0, 0, 0, 14, 0, 0, 0, first, 0][..], &[0xff; 4]].concat();
    match said {
        Said::Take => vec![several(15)],
        Said::Give => vec![several(2)],
        Said::Extend | Said::Time(_) => {
            let length = |letters: usize| {
                let path =
                    format!("{chroot}/leasehold/00/{}/l-{}", "n".repeat(letters), "0".repeat(32));
                [0, 0, 0, 5, 0, 0, 0, u8::try_from(path.len()).unwrap()].to_vec()
            };
            vec![several(5), length(4), length(5)]
        }
    }
}

/// What has to be so of a key: that it was not created (1), or not written since (2); a give may ask for
/// neither. The life of a lease begins anew, or one of another length takes its place: it says no time.
#[cfg(feature = "etcd")]
fn etcd_marks(said: Said) -> Vec<Vec<u8>> {
    match said {
        Said::Take => vec![b"\x10\x01\x1a".into()],
        Said::Give => vec![b"\x10\x02\x1a".into()],
        Said::Extend => {
            vec![b"/etcdserverpb.Lease/LeaseKeepAlive".into(), b"\x10\x02\x1a".into()]
        }
        Said::Time(_) => vec![b"/etcdserverpb.Lease/LeaseKeepAlive".into()],
    }
}

/// The lock `lock`, which nobody renews.
pub(crate) fn take(client: &Client, ttl: Duration) -> Lease {
    client.lock("lock").ttl(ttl).renew(false).try_acquire().unwrap().expect("it is free")
}

/// More than a call may take that ends by its deadline.
pub(crate) const SLACK: Duration = ms(50);

/// Plays a promise on a store, unless it cannot be.
pub(crate) fn play(name: &str, kind: &str, store: fn() -> Store, promise: fn(&mut Far)) {
    if !is_left_out(name, kind) {
        kit::unless_starved(kit::STALL, || promise(&mut Far::new(store())));
    }
}

/// Makes a test of each function for each store that has one server. They need the processor in time.
macro_rules! on_each_server {
    ($($promise:ident,)+) => {
        crate::far::on_server!(on_redis, redis, redis, $($promise)+);
        #[cfg(feature = "postgres")]
        crate::far::on_server!(on_postgres, postgres, postgres, $($promise)+);
        #[cfg(feature = "mysql")]
        crate::far::on_server!(on_mysql, mysql, mysql, $($promise)+);
        #[cfg(feature = "zookeeper")]
        crate::far::on_server!(on_zookeeper, zookeeper, zookeeper, $($promise)+);
        #[cfg(feature = "etcd")]
        crate::far::on_server!(on_etcd, etcd, etcd, $($promise)+);
    };
}
pub(crate) use on_each_server;

/// The same, each with a server of its own, which may stand still and crash.
macro_rules! on_each_own_server {
    ($($promise:ident,)+) => {
        crate::far::on_server!(on_an_own_redis, redis, own_redis, $($promise)+);
        #[cfg(feature = "postgres")]
        crate::far::on_server!(on_an_own_postgres, postgres, own_postgres, $($promise)+);
        #[cfg(feature = "mysql")]
        crate::far::on_server!(on_an_own_mysql, mysql, own_mysql, $($promise)+);
        #[cfg(feature = "zookeeper")]
        crate::far::on_server!(on_an_own_zookeeper, zookeeper, own_zookeeper, $($promise)+);
        #[cfg(feature = "etcd")]
        crate::far::on_server!(on_an_own_etcd, etcd, own_etcd, $($promise)+);
    };
}
pub(crate) use on_each_own_server;

macro_rules! on_server {
    ($module:ident, $kind:ident, $store:ident, $($promise:ident)+) => {
        mod $module {
            $(#[test] fn $promise() {
                let (name, kind) = (stringify!($promise), stringify!($kind));
                crate::far::play(name, kind, crate::stores::Store::$store, super::$promise);
            })+
        }
    };
}
pub(crate) use on_server;
