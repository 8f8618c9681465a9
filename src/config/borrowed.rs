//! The settings that a program has for its Redis, in the words of the crate `redis`.

use ::redis::{ConnectionAddr, ConnectionInfo};

use super::redis::{Access, Address, RedisConfig, Servers};
use super::tls::{TlsConfig, TlsWords, check_built};
use super::{Secret, bad};
use crate::error::Error;

impl RedisConfig {
    /// What a client of the crate `redis` connects to.
    pub(super) fn borrowed(info: &ConnectionInfo) -> Result<RedisConfig, Error> {
        let rather = "give a URL, as in Config::from_url(\"rediss://user:password@host?ca=/path/to/ca.pem\")";
        let refuse = |why: &str| bad(format!("these settings of the redis crate {why}: {rather}"));
        let (address, tls) = match info.addr() {
            ConnectionAddr::Tcp(host, port) => {
                (Address::Tcp { host: host.clone(), port: *port }, None)
            }
            ConnectionAddr::Unix(path) => (Address::Unix(path.clone()), None),
            ConnectionAddr::TcpTls { insecure: true, .. } => {
                return Err(refuse(
                    "do not verify the server's certificate, and Leasehold always does",
                ));
            }
            ConnectionAddr::TcpTls { tls_params: Some(_), .. } => {
                return Err(refuse("have certificates in memory, and Leasehold reads files"));
            }
            ConnectionAddr::TcpTls { host, port, .. } => {
                check_built("TLS")?;
                (
                    Address::Tcp { host: host.clone(), port: *port },
                    Some(TlsConfig::new(&TlsWords::REDIS)),
                )
            }
            _ => return Err(refuse("have an address of a kind that Leasehold does not know")),
        };
        if let Address::Tcp { host, port } = &address
            && (host.is_empty() || *port == 0)
        {
            return Err(refuse("have no host, or no port"));
        }
        let login = info.redis_settings();
        if login.username().is_some() && login.password().is_none() {
            return Err(refuse("have a user and no password"));
        }
        let access = Access {
            tls,
            user: login.username().map(str::to_owned),
            password: login.password().map(|password| Secret(password.to_owned())),
            database: u32::try_from(login.db()).map_err(|_| refuse("have a database below 0"))?,
            ..Access::default()
        };
        Ok(RedisConfig { servers: Servers::One(address), access, replicas: 0 })
    }
}

#[cfg(test)]
mod tests {
    use ::redis::{Client, IntoConnectionInfo, RedisConnectionInfo};

    use crate::{Config, ErrorKind};

    use super::*;

    fn read(url: &str) -> Config {
        Config::from_redis(Client::open(url).unwrap().get_connection_info()).unwrap()
    }

    #[test]
    fn the_crates_settings_are_those_of_their_url() {
        for url in [
            "redis://cache",
            "redis://cache:6380/3",
            "redis://app:p%40ss@cache:6380/3",
            "redis://:secret@[::1]:6380",
        ] {
            assert_eq!(read(url), Config::from_url(url).unwrap(), "{url}");
        }
        let socket = "unix:///run/redis.sock?db=2&user=app&pass=secret";
        assert_eq!(read(socket), Config::from_url(&socket.replace("pass=", "password=")).unwrap());
    }

    /// The crate makes no such address without its own TLS, from a URL.
    fn over_tls(insecure: bool) -> ConnectionInfo {
        let host = "cache".to_owned();
        let address = ConnectionAddr::TcpTls { host, port: 6380, insecure, tls_params: None };
        "redis://other".into_connection_info().unwrap().set_addr(address)
    }

    #[test]
    fn tls_stays_tls() {
        let read = Config::from_redis(&over_tls(false));
        match Config::from_url("rediss://cache:6380") {
            Ok(expected) => assert_eq!(read.unwrap(), expected),
            Err(_) => assert!(read.unwrap_err().detail().contains("feature 'tls'")),
        }
    }

    #[test]
    fn settings_that_cannot_be_followed_are_refused() {
        let plain = || "redis://cache".into_connection_info().unwrap();
        let login = RedisConnectionInfo::default;
        for (settings, why) in [
            (over_tls(true), "do not verify the server's certificate"),
            (
                plain().set_redis_settings(login().set_username("app")),
                "have a user and no password",
            ),
            (plain().set_redis_settings(login().set_db(-1)), "have a database below 0"),
            (plain().set_addr(ConnectionAddr::Tcp(String::new(), 6379)), "have no host"),
            (
                plain().set_addr(ConnectionAddr::Tcp("cache".to_owned(), 0)),
                "have no host, or no port",
            ),
        ] {
            let error = Config::from_redis(&settings).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadArgument);
            let said = error.detail();
            assert!(said.contains(why) && said.contains(": give a URL, as in"), "{said}");
            assert!(!said.contains(". "), "one sentence: {said}");
        }
    }
}
