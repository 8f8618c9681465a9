//! Listening that is ended, and servers that do not allow it or say nothing.

use super::*;

#[test]
fn closing_ends_a_hear_at_once_and_for_good() {
    unless_starved(ms(10), || {
        let server = Server::builder().tls().start();
        let urls = if cfg!(feature = "tls") {
            vec![server.url(), server.tls_url()]
        } else {
            vec![server.url()]
        };
        for url in urls {
            let listener = opened(&url);
            thread::scope(|scope| {
                let hears = scope.spawn(|| listener.numbers(Moment::NEVER));
                eventually(LIMIT, || listener.subscriptions.enter_now().is_none());
                let watch = Stopwatch::start();
                listener.close();
                assert_eq!(hears.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
                watch.assert_at_most(ms(0), ms(50));
            });
            listener.assert_closed();
            eventually(LIMIT, || listeners(&server) == 0);
            listener.close();
        }
        let idle = opened(&server.url());
        idle.close();
        assert!(idle.subscriptions.enter_now().unwrap().is_empty());
        idle.assert_closed();
        let never_opened = listener(&server.url());
        never_opened.close();
        never_opened.assert_closed();
    });
}

#[test]
fn closing_ends_an_open_at_once() {
    unless_starved(ms(10), || {
        let server = Server::builder().tls().start();
        let hole = BlackHole::open();
        server.stop();
        let mut urls = vec![hole.url(), server.url()];
        if cfg!(feature = "tls") {
            urls.push(server.tls_url());
        }
        for url in urls {
            let listener = listener(&url);
            thread::scope(|scope| {
                let opens = scope.spawn(|| listener.open(NAME, Deadline::after(LIMIT)));
                eventually(LIMIT, || listener.state.lock().opening.is_some());
                let watch = Stopwatch::start();
                listener.close();
                assert_eq!(opens.join().unwrap().unwrap_err().kind(), ErrorKind::Closed, "{url}");
                watch.assert_at_most(ms(0), ms(50));
            });
            listener.assert_closed();
        }
    });
}

#[test]
fn a_user_that_may_not_subscribe_is_told_for_good() {
    let server = Server::start();
    let channels = format!("&{CHANNEL}*");
    for (user, rules) in [
        ("channelless", ["resetchannels", "+@all"]),
        ("elsewhere", ["&other:*", "+@all"]),
        ("commandless", [&channels, "-subscribe"]),
    ] {
        let mut words = vec!["ACL", "SETUSER", user, "on", ">p", "resetchannels"];
        words.extend(rules);
        server.cmd(&words);
        let error = listener(&format!("redis://{user}:p@127.0.0.1:{}", server.port()))
            .open(NAME, Deadline::after(LIMIT))
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Permission, "{user}: {error}");
        assert!(!error.is_retriable());
    }
    let rules = ["ACL", "SETUSER", "enough", "on", ">p", "resetchannels", &channels, "+subscribe"];
    server.cmd(&rules);
    let listener = opened(&format!("redis://enough:p@127.0.0.1:{}", server.port()));
    publish(&server, &listener, "1");
    listener.expect([1]);
}

/// Each name that is told there would have to find out for itself.
#[test]
fn a_server_that_refused_is_not_asked_again_for_a_while() {
    let server = Server::start();
    server.cmd(&["ACL", "SETUSER", "late", "on", ">p", "&*", "+@all", "-subscribe"]);
    let listener = listener(&format!("redis://late:p@127.0.0.1:{}", server.port()));
    let open = |name: &[u8]| listener.open(name, Deadline::after(LIMIT));
    assert_eq!(open(NAME).unwrap_err().kind(), ErrorKind::Permission);
    server.cmd(&["ACL", "SETUSER", "late", "+subscribe"]);
    assert_eq!(open(b"another").unwrap_err().kind(), ErrorKind::Permission);
    listener.rest_until(Moment::ZERO);
    open(b"another").unwrap();
    publish(&server, &listener, "1");
    listener.expect([1]);
}

/// Names that are told elsewhere wait while it is asked: they have as much time in between.
#[test]
fn a_silent_server_is_left_alone_for_as_long_as_it_was_waited_for() {
    let server = Server::start();
    let listener = listener(&server.url());
    server.stop();
    let open = |span| listener.open(NAME, Deadline::after(span));
    let began = Moment::now();
    assert_eq!(open(ms(100)).unwrap_err().kind(), ErrorKind::NoAnswer);
    let (until, took) = (listener.state.lock().resting[&0].0, Moment::now().since(began));
    assert!(until >= began.plus(ms(200)) && until <= Moment::now().plus(took));
    server.cont();
    listener.rest_until(Moment::NEVER);
    assert_eq!(open(LIMIT).unwrap_err().kind(), ErrorKind::NoAnswer);
    listener.rest_until(Moment::ZERO);
    open(LIMIT).unwrap();
}
