//! The credentials of a client that change: who is asked for them, and which of its servers they are for.

use std::fmt::Display;

use super::credentials::{Credentials, Endpoint, Provider};
use super::keyring::{Keyring, Source};
use super::{Access, Config, Servers, StoreConfig, bad};
use crate::clock::Deadline;
use crate::error::Error;

impl Config {
    /// Looks up the credentials of the server that keeps the locks, while the program runs: tokens
    /// of a cloud, or passwords that a vault changes. The URL then has no password.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use leasehold::{Client, Config, Credentials};
    /// # fn token(host: &str) -> Result<String, std::io::Error> { Ok(host.to_owned()) }
    ///
    /// let config = Config::from_url("rediss://cache.example.com")?.credentials(|endpoint| {
    ///     let token = token(&endpoint.host)?;
    ///     Ok::<_, std::io::Error>(
    ///         Credentials::new(token).user("app").valid_for(Duration::from_secs(900)),
    ///     )
    /// });
    /// let client = Client::with_config(config)?;
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// A thread of the client calls `provider`, one call at a time, for each server apart. It does so
    /// when the first connection needs credentials, and again before they end: at about three quarters
    /// of their life, not at the same moment in all clients. Where that fails, the last ones are used
    /// until they end, and the client asks again and again. A call that waits for the first ones does
    /// so until its own deadline. If a server refuses credentials, the client asks once more.
    ///
    /// A connection to Redis that is open logs in again (AUTH) with the newest credentials, before its
    /// next request. PostgreSQL and MySQL use the newest for each new connection, a ZooKeeper and an
    /// etcd for each login. Sentinels have their own credentials, in the URL.
    ///
    /// An error or a panic of `provider`, and a secret that has ended, are
    /// [`ErrorKind::Auth`](crate::ErrorKind::Auth), with its text. A `provider` that has not returned by a
    /// call's deadline is [`ErrorKind::NoAnswer`](crate::ErrorKind::NoAnswer).
    pub fn credentials<E: Display>(
        mut self,
        provider: impl Fn(&Endpoint) -> Result<Credentials, E> + Send + Sync + 'static,
    ) -> Config {
        let ask = move |endpoint: &Endpoint| provider(endpoint).map_err(|error| error.to_string());
        self.credentials = Some(Provider::new(ask));
        self
    }

    #[cfg(feature = "capi")]
    pub(crate) fn without_credentials(mut self) -> Config {
        self.credentials = None;
        self
    }

    pub(super) fn check_credentials(&self) -> Result<(), Error> {
        if self.credentials.is_none() {
            return Ok(());
        }
        let accesses = self.store.accesses();
        if accesses.is_empty() {
            return Err(bad("credentials are for servers; this store has none to log in to"));
        }
        if accesses.iter().any(|access| access.names_password()) {
            return Err(bad(
                "the URL has a password, and a credentials callback is set: leave one out",
            ));
        }
        Ok(())
    }

    /// The same with keyrings of its own, as each open store has.
    pub(crate) fn with_keyrings(mut self) -> Config {
        let of_client = self.credentials.clone().map(|ask| Keyring::new(Source::Callback(ask)));
        self.keyrings = of_client.clone().into_iter().collect();
        for (access, is_sentinels) in self.store.accesses_mut() {
            access.keyring = match access.password_command.clone() {
                Some(command) => {
                    let keyring = Keyring::new(Source::Command(command));
                    self.keyrings.push(keyring.clone());
                    Some(keyring)
                }
                None => of_client.clone().filter(|_| !is_sentinels),
            };
        }
        self
    }

    pub(crate) fn close_keyrings(&self) {
        self.keyrings.iter().for_each(Keyring::close);
    }

    /// Waits for the threads of those that are closed.
    pub(crate) fn join_keyrings(&self, deadline: Deadline) {
        self.keyrings.iter().for_each(|keyring| keyring.join(deadline));
    }
}

impl StoreConfig {
    /// How the servers that keep the locks are logged in to.
    fn accesses(&self) -> Vec<&Access> {
        match self {
            StoreConfig::Redis(redis) => vec![&redis.access],
            StoreConfig::Quorum(members) => members.iter().map(|redis| &redis.access).collect(),
            StoreConfig::Sqlite(_) => Vec::new(),
            #[cfg(feature = "testing")]
            StoreConfig::Memory(_) => Vec::new(),
            #[cfg(feature = "postgres")]
            StoreConfig::Postgres(postgres) => vec![&postgres.access],
            #[cfg(feature = "mysql")]
            StoreConfig::Mysql(mysql) => vec![&mysql.access],
            #[cfg(feature = "zookeeper")]
            StoreConfig::Zookeeper(zookeeper) => vec![&zookeeper.access],
            #[cfg(feature = "etcd")]
            StoreConfig::Etcd(etcd) => vec![&etcd.access],
        }
    }

    /// The same to be changed, and with that of Sentinels, for which the second is true.
    pub(super) fn accesses_mut(&mut self) -> Vec<(&mut Access, bool)> {
        let redis = match self {
            StoreConfig::Redis(redis) => std::slice::from_mut(&mut **redis),
            StoreConfig::Quorum(members) => members,
            StoreConfig::Sqlite(_) => &mut [],
            #[cfg(feature = "testing")]
            StoreConfig::Memory(_) => &mut [],
            #[cfg(feature = "postgres")]
            StoreConfig::Postgres(postgres) => return vec![(&mut postgres.access, false)],
            #[cfg(feature = "mysql")]
            StoreConfig::Mysql(mysql) => return vec![(&mut mysql.access, false)],
            #[cfg(feature = "zookeeper")]
            StoreConfig::Zookeeper(zookeeper) => return vec![(&mut zookeeper.access, false)],
            #[cfg(feature = "etcd")]
            StoreConfig::Etcd(etcd) => return vec![(&mut etcd.access, false)],
        };
        let mut all = Vec::new();
        for redis in redis {
            all.push((&mut redis.access, false));
            if let Servers::Sentinel(sentinels) = &mut redis.servers {
                all.push((&mut sentinels.access, true));
            }
        }
        all
    }
}
