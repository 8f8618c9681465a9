//! The ways to a server, each with what can be wrong with it: TCP, unix socket, TLS.

use std::time::Duration;

use kit::*;
use leasehold::{Client, ErrorKind};
use redis::Value;

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// Takes, extends and releases, and the key is where it should be meanwhile.
#[track_caller]
fn assert_works(url: &str, server: &Server, database: &str) {
    let client = Client::open(url).unwrap();
    client.ping().unwrap();
    let lock = client.lock("lock");
    let lease = lock.try_acquire().unwrap().expect("nobody else wants it");
    assert!(lock.try_acquire().unwrap().is_none());
    let mut connection = server.connection();
    let _: Value = redis::cmd("SELECT").arg(database).query(&mut connection).unwrap();
    let holder: Option<String> = redis::cmd("GET").arg("lock").query(&mut connection).unwrap();
    assert_eq!(holder, Some(lease.token().to_string()));
    lease.extend().unwrap();
    lease.release().unwrap();
    let left: u64 = redis::cmd("EXISTS").arg("lock").query(&mut connection).unwrap();
    assert_eq!(left, 0);
}

#[test]
fn every_plain_way_to_a_server_works() {
    let password = "p@ss:w/rd?%";
    let server = Server::builder().arg("--requirepass", password).unix().start();
    server.cmd(&["ACL", "SETUSER", "clerk", "on", ">clerk's", "~*", "&*", "+@all"]);
    let clerk = format!("clerk:clerk's@127.0.0.1:{}", server.port());
    assert_works(&server.url(), &server, "0");
    assert_works(&format!("{}/3", server.url()), &server, "3");
    assert_works(&format!("redis://{clerk}/2"), &server, "2");
    assert_works(&format!("redis://{}", clerk.replace("127.0.0.1", "localhost")), &server, "0");
    assert_works(&server.unix_url(), &server, "0");
    assert_works(&format!("{}&db=4", server.unix_url()), &server, "4");
    let path = server.unix_url().split('?').next().unwrap().to_owned();
    assert_works(&format!("{path}?user=clerk&password=clerk's&db=1"), &server, "1");
}

#[test]
fn c13_a_socket_path_that_leads_nowhere_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    for path in [dir.path().join("missing"), file, dir.path().to_owned()] {
        let client = Client::open(&format!("unix://{}?io_timeout=300ms", path.display())).unwrap();
        let watch = Stopwatch::start();
        let error = client.lock("lock").try_acquire().map(drop).unwrap_err();
        watch.assert_at_most(ms(300), ms(50));
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
}

#[cfg(feature = "tls")]
mod tls {
    use super::*;

    #[track_caller]
    fn assert_no_tls(url: &str) -> String {
        let client = Client::open(url).unwrap();
        let watch = Stopwatch::start();
        let error = client.lock("lock").try_acquire().map(drop).unwrap_err();
        watch.assert_at_most(ms(0), ms(1000));
        assert_eq!(error.kind(), ErrorKind::Tls, "{error}");
        assert!(!error.is_retriable());
        error.to_string()
    }

    /// Long enough to tell a refusal at once from one at the deadline.
    fn patient(url: &str) -> String {
        format!("{url}{}io_timeout=5s", if url.contains('?') { '&' } else { '?' })
    }

    #[test]
    fn a_certificate_of_a_trusted_authority_works_for_its_names() {
        let server = Server::builder().tls().arg("--requirepass", "secret").start();
        assert_works(&server.tls_url(), &server, "0");
        assert_works(&server.tls_url().replace("127.0.0.1", "localhost"), &server, "0");
        assert_works(&server.tls_url().replace("?ca=", "/5?ca="), &server, "5");
    }

    #[test]
    fn c13_an_authority_that_is_not_trusted_is_refused_at_once() {
        let server = Server::builder().tls().start();
        let other = Server::builder().tls().start();
        let ca = |server: &Server| server.certificates().ca().display().to_string();
        let url = server.tls_url().replace(&ca(&server), &ca(&other));
        assert_no_tls(&patient(&url));
        // Nor is the server's own certificate an authority.
        let own = server.certificates().server(ServerCertificate::Good).0;
        let url = server.tls_url().replace(&ca(&server), &own.display().to_string());
        let said = assert_no_tls(&patient(&url));
        assert!(said.contains("the authority that issued it, not the server's own"), "{said}");
        assert_eq!(server.cmd(&["DBSIZE"]), Value::Int(0));
    }

    #[test]
    fn c13_a_certificate_that_is_expired_or_another_hosts_is_refused_at_once() {
        let expired = Server::builder().tls_showing(ServerCertificate::Expired).start();
        let said = assert_no_tls(&patient(&expired.tls_url()));
        assert!(said.contains("certificate expired ") && said.contains(" s ago"), "{said}");
        let elsewhere = Server::builder().tls_showing(ServerCertificate::WrongHost).start();
        let said = assert_no_tls(&patient(&elsewhere.tls_url()));
        assert!(said.contains("is not for 127.0.0.1, but for "), "{said}");
        assert!(said.contains("elsewhere.invalid"), "{said}");
    }

    #[test]
    fn c13_a_client_certificate_that_is_asked_for_must_be_given() {
        let server = Server::builder().tls().arg("--tls-auth-clients", "yes").start();
        let (cert, key) = server.certificates().client();
        let with = format!("{}&cert={}&key={}", server.tls_url(), cert.display(), key.display());
        assert_works(&with, &server, "0");
        let said = assert_no_tls(&patient(&server.tls_url()));
        assert!(said.contains("cert= and key="), "{said}");
    }

    #[test]
    fn c13_tls_on_a_plain_port_is_refused_by_the_deadline() {
        let server = Server::builder().tls().start();
        let plain = server
            .tls_url()
            .replace(&format!(":{}", server.tls_port()), &format!(":{}", server.port()));
        let client = Client::open(&format!("{plain}&io_timeout=400ms")).unwrap();
        let watch = Stopwatch::start();
        let error = client.lock("lock").try_acquire().map(drop).unwrap_err();
        watch.assert_at_most(ms(400), ms(50));
        // Redis takes the first message for the beginning of a long line and waits for its end,
        // unless there happens to be an end of line in it.
        let kinds = [ErrorKind::NoAnswer, ErrorKind::Tls];
        assert!(kinds.contains(&error.kind()), "{error}");
        assert!(error.to_string().contains("try redis://"), "{error}");
    }

    #[test]
    fn c13_a_plain_url_on_a_tls_port_is_refused_and_takes_nothing() {
        let server = Server::builder().tls().start();
        let url = format!("redis://127.0.0.1:{}?io_timeout=400ms", server.tls_port());
        let client = Client::open(&url).unwrap();
        let watch = Stopwatch::start();
        let error = client.lock("lock").try_acquire().map(drop).unwrap_err();
        watch.assert_at_most(ms(400), ms(50));
        // From here it looks like a server that was asked and then went away, or it says an alert.
        let kinds = [ErrorKind::Refused, ErrorKind::Tls];
        assert!(kinds.contains(&error.kind()), "{error}");
        assert!(error.to_string().contains("write rediss://"), "{error}");
        assert_eq!(server.cmd(&["DBSIZE"]), Value::Int(0));
    }

    #[test]
    fn c7_a_handshake_that_gets_no_answer_ends_by_the_deadline() {
        let server = Server::builder().tls().start();
        let mut proxy = Proxy::start(server.tls_port());
        let through = server
            .tls_url()
            .replace(&format!(":{}", server.tls_port()), &format!(":{}", proxy.port()));
        for mode in [Mode::Silent, Mode::Dribble(ms(80)), Mode::SwallowReplies] {
            proxy.set(mode);
            let client = Client::open(&format!("{through}&io_timeout=300ms")).unwrap();
            let watch = Stopwatch::start();
            let error = client.lock("lock").try_acquire().map(drop).unwrap_err();
            watch.assert_at_most(ms(300), ms(50));
            assert_eq!(error.kind(), ErrorKind::NoAnswer, "{mode:?}: {error}");
        }
        proxy.set(Mode::Pass);
        assert_works(&through, &server, "0");
    }

    #[test]
    fn c6_replies_lost_inside_tls_are_unknown_too() {
        let server = Server::builder().tls().start();
        let mut proxy = Proxy::start(server.tls_port());
        let through = server
            .tls_url()
            .replace(&format!(":{}", server.tls_port()), &format!(":{}", proxy.port()));
        let client =
            Client::open(&format!("{through}&io_timeout=1s&register=no&advise=no")).unwrap();
        client.lock("lock").try_acquire().unwrap().unwrap().release().unwrap();
        for end in [End::Fin, End::Reset] {
            proxy.set(Mode::LoseReply(end));
            let lease = client.lock("lock").try_acquire().unwrap().expect("nobody else wants it");
            let holder: Option<String> =
                redis::from_redis_value(server.cmd(&["GET", "lock"])).unwrap();
            assert_eq!(holder, Some(lease.token().to_string()));
            assert_eq!(proxy.mode(), Mode::Pass, "the reply was lost");
            proxy.set(Mode::LoseReply(end));
            lease.release().unwrap();
            assert_eq!(proxy.mode(), Mode::Pass, "the reply was lost");
        }
        assert_eq!(client.counters().unknown, 4);
    }
}
