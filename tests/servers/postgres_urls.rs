//! What libpq's parameters of a URL do on a real server.

use std::time::Instant;

#[cfg(feature = "tls")]
use crate::postgres::made;
use crate::postgres::of;
use crate::sql::{client, refused, with};
#[cfg(feature = "tls")]
use crate::stores::LIMIT;
use crate::stores::{STALL, Store, secs};
use kit::{BlackHole, unless_starved};
#[cfg(feature = "tls")]
use kit::{Certificates, Postgres, ServerCertificate, eventually};
use leasehold::{Client, ErrorKind};

#[test]
fn options_are_what_a_server_sets_for_each_session() {
    let store = Store::postgres();
    let database = of(&store);
    let (few, many) = (format!("few_{}", database.name), format!("many_{}", database.name));
    database.sql(&format!(
        "CREATE ROLE {many}; GRANT USAGE ON SCHEMA leasehold TO {many};
         GRANT ALL ON ALL TABLES IN SCHEMA leasehold TO {many}; CREATE ROLE {few} LOGIN;
         GRANT {many} TO {few}; ALTER ROLE {few} NOINHERIT"
    ));
    let url = store.url().replace("postgres@", &format!("{few}@"));
    assert_eq!(refused(&url).kind(), ErrorKind::Permission);
    let url = with(&url, &format!("options=-c%20role%3D{many}"));
    client(&url).lock("n").acquire().unwrap().release().unwrap();
}

#[test]
fn a_host_that_lets_nobody_in_by_connect_timeout_is_passed_over() {
    unless_starved(STALL, || {
        let (store, hole) = (Store::postgres(), BlackHole::open());
        let port = of(&store).server().port();
        let both = format!("127.0.0.1:{},127.0.0.1:{port}", hole.port());
        let url = store.url().replace(&format!("127.0.0.1:{port}"), &both);
        let url = with(&url, "io_timeout=20s&connect_timeout=1");
        let asked = Instant::now();
        Client::open(&url).unwrap().ping().unwrap();
        // Else the other one is asked after half of the time.
        let took = asked.elapsed();
        assert!((secs(1)..secs(8)).contains(&took), "{took:?}");
    });
}

#[cfg(feature = "tls")]
#[test]
fn c12_a_login_is_bound_to_the_certificate_that_the_server_shows() {
    let dir = tempfile::tempdir().unwrap();
    let certificates = Certificates::make(dir.path());
    let server = Postgres::start_with(&["fsync=off"]);
    let database = made(&server);
    let (certificate, key) = certificates.server(ServerCertificate::Good);
    server.show_certificate(&certificate, &key);
    server.sql(
        &database,
        "CREATE ROLE bound LOGIN SUPERUSER PASSWORD 'p@ss'; SET password_encryption = 'md5';
         CREATE ROLE weak LOGIN SUPERUSER PASSWORD 'p@ss'",
    );
    let rules = "host all bound all scram-sha-256\nhost all weak all md5\nhost all all all trust\n";
    std::fs::write(server.dir().join("pg_hba.conf"), rules).unwrap();
    server.sql(&database, "SELECT pg_reload_conf()");
    let url = |user: &str, mode: &str| {
        let place = format!("{user}:p%40ss@127.0.0.1:{}/{database}", server.port());
        format!("postgres://{place}?sslmode={mode}")
    };
    let plain = format!("{}&application_name=plain", url("bound", "disable"));
    // Rules are read soon after.
    let wrong = plain.replace("p%40ss", "wrong");
    eventually(LIMIT, || client(&wrong).ping().is_err_and(|error| error.kind() == ErrorKind::Auth));
    for binding in
        ["", "&channel_binding=disable", "&channel_binding=prefer", "&channel_binding=require"]
    {
        client(&format!("{}{binding}", url("bound", "require"))).ping().unwrap();
    }
    client(&plain).ping().unwrap();
    for unbound in ["weak", "postgres"] {
        client(&url(unbound, "require")).ping().unwrap();
        let error = refused(&with(&url(unbound, "require"), "channel_binding=require"));
        assert_eq!(error.kind(), ErrorKind::Auth, "{unbound}: {error}");
        assert!(error.detail().contains("binds no login to its certificate"), "{error}");
    }
}
