//! A client with the settings that a program has for its Redis.

use ::redis::{Client as Theirs, IntoConnectionInfo};

use crate::stores::secs;
use kit::Server;
use leasehold::{Client, Config, ErrorKind};

fn client(theirs: &Theirs) -> Client {
    let config = Config::from_redis(theirs.get_connection_info()).unwrap().io_timeout(secs(20));
    Client::with_config(config).unwrap()
}

/// How the crate may have been told the same: by a URL, or in code.
#[test]
fn locks_are_in_the_database_of_the_crates_client_under_its_user() {
    let server = Server::builder().user("app", "p@ss/word").start();
    let url = format!("redis://app:p%40ss%2Fword@127.0.0.1:{}/3", server.port());
    let in_code = url.as_str().into_connection_info().unwrap();
    let ours = Client::open(&format!("{url}?io_timeout=20s")).unwrap();
    for theirs in [Theirs::open(url.as_str()).unwrap(), Theirs::open(in_code).unwrap()] {
        let borrowed = client(&theirs);
        assert_eq!(borrowed.store(), ours.store());
        let held = borrowed.lock("stock:17").try_acquire().unwrap().expect("it is free");
        assert!(ours.lock("stock:17").try_acquire().unwrap().is_none());
        // Also as the crate itself sees it.
        let mut connection = theirs.get_connection().unwrap();
        let found: bool = ::redis::cmd("EXISTS").arg("stock:17").query(&mut connection).unwrap();
        assert!(found);
        held.release().unwrap();
    }
}

#[test]
fn a_password_that_the_server_does_not_know_is_an_error_of_the_login() {
    let server = Server::builder().user("app", "right").start();
    let theirs = Theirs::open(format!("redis://app:wrong@127.0.0.1:{}", server.port())).unwrap();
    let error = client(&theirs).lock("n").try_acquire().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth);
}
