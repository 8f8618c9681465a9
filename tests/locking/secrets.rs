//! A password stays where it was put.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Mutex;
use std::time::Duration;

use crate::stores::{LIMIT, ms, secs};
use kit::{Mode, Proxy, Server, eventually};
use leasehold::{Client, Config, ErrorKind};

/// What was logged, raised, shown or panicked with.
static HEARD: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn hear(text: impl Into<String>) {
    HEARD.lock().unwrap().push(text.into());
}

struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        hear(format!("{} {}", record.target(), record.args()));
    }

    fn flush(&self) {}
}

/// With characters that have to be encoded in a URL, and as it is written there.
const PASSWORD: &str = "Zk7/q@w:x#%y?&=";
const ENCODED: &str = "Zk7%2Fq%40w%3Ax%23%25y%3F%26%3D";
/// Any of these would be too much.
const PIECES: [&str; 4] = ["Zk7", "q@w", "q%40w", "x%23"];

fn hear_error<T>(result: Result<T, leasehold::Error>) -> ErrorKind {
    let error = result.err().expect("an error");
    hear(format!("{error} {error:?} {}", error.detail()));
    // A panic's message, as the program's hook gets it.
    let unwrapped = error.clone();
    let panic = std::panic::catch_unwind(move || panic!("called unwrap: {unwrapped:?}"));
    hear(*panic.unwrap_err().downcast::<String>().unwrap());
    error.kind()
}

fn everything_goes_well(server: &Server) {
    let config = Config::from_url(&server.url()).unwrap().io_timeout(secs(10));
    hear(format!("{config:?} {}", config.display_store()));
    let client = Client::with_config(config).unwrap();
    let (lock, events) = (client.lock("n"), client.events().unwrap());
    let lease = lock.acquire().unwrap();
    hear(format!("{client:?} {} {lock:?} {lease:?} {events:?}", client.store()));
    hear(format!("{:?} {:?}", lock.inspect().unwrap(), client.counters()));
    assert_eq!(hear_error(lock.acquire_within(ms(10))), ErrorKind::Timeout);
    server.cmd(&["DEL", "n"]);
    assert_eq!(hear_error(lease.release()), ErrorKind::Lost);
    let late = client.lock("late").ttl(ms(30)).acquire_within(LIMIT).unwrap();
    hear(format!("{:?}", events.next().unwrap()));
    hear(format!("{:?}", events.next_within(Duration::ZERO).unwrap()));
    drop(late);
    client.close().unwrap();
    assert_eq!(hear_error(client.ping()), ErrorKind::Closed);
}

/// Says of AUTH what a Redis says of every command that it does not know, or has under another
/// name: it repeats the arguments.
fn a_server_without_auth() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.read(&mut [0; 4096]);
            let _ = write!(
                stream,
                "-ERR unknown command 'AUTH', with args beginning with: 'bob' '{PASSWORD}' \r\n"
            );
        }
    });
    port
}

fn everything_goes_wrong(server: &Server) {
    let place = format!("127.0.0.1:{}", server.port());
    let open = |url: String| Client::open(&url).unwrap();
    assert_eq!(hear_error(open(format!("redis://:{ENCODED}x@{place}")).ping()), ErrorKind::Auth);
    let stranger = open(format!("redis://bob:{ENCODED}@{place}"));
    assert_eq!(hear_error(stranger.lock("n").acquire()), ErrorKind::Auth);
    let database = open(format!("redis://:{ENCODED}@{place}/9999"));
    assert_eq!(hear_error(database.ping()), ErrorKind::BadArgument);
    let nowhere = open(format!("redis://:{ENCODED}@127.0.0.1:1"));
    assert_eq!(hear_error(nowhere.lock("n").try_acquire()), ErrorKind::Refused);
    let socket = open(format!("unix:///no/such/socket?user=bob&password={ENCODED}"));
    hear(format!("{socket:?} {}", socket.store()));
    assert_eq!(hear_error(socket.ping()), ErrorKind::Refused);
    for url in [
        format!("redis+sentinel://:{ENCODED}@h/m?sentinel_user=bob&sentinel_password={ENCODED}"),
        format!("redis+cluster://bob:{ENCODED}@h,i"),
        format!("redis://:{ENCODED}@a,redis://bob:{ENCODED}@b,unix:///c?password={ENCODED}"),
    ] {
        let config = Config::from_url(&url).unwrap();
        hear(format!("{config:?} {}", config.display_store()));
    }
    if let Err(error) = Client::open(&format!("rediss://:{ENCODED}@{place}?ca=/no/such/file")) {
        hear_error::<()>(Err(error));
    }

    let strange = open(format!("redis://bob:{ENCODED}@127.0.0.1:{}", a_server_without_auth()));
    assert_eq!(hear_error(strange.ping()), ErrorKind::Protocol);
    assert_eq!(hear_error(strange.lock("n").try_acquire()), ErrorKind::Protocol);

    // Renewals that fail are logged.
    let mut proxy = Proxy::start(server.port());
    let client = open(format!("{}?io_timeout=1s", server.url_through(proxy.port())));
    let events = client.events().unwrap();
    let lease = client.lock("renewed").ttl(secs(5)).acquire_within(LIMIT).unwrap();
    proxy.set(Mode::SwallowReplies);
    eventually(LIMIT, || client.counters().lost == 1);
    while let Some(event) = events.try_next().unwrap() {
        hear(format!("{event:?}"));
    }
    hear_error(lease.release());
    hear_error(client.lock("n").try_acquire());
    hear_error(client.ping());
}

fn the_url_is_wrong() {
    for url in [
        // Written without encoding, by somebody in a hurry.
        format!("redis://:{PASSWORD}@127.0.0.1"),
        format!("redis://bob:{PASSWORD}@127.0.0.1:6379/0"),
        format!("unix:///socket?password={PASSWORD}"),
        // And wrong in some other place.
        format!("redis://{ENCODED}@127.0.0.1"),
        format!("redis://bob:{ENCODED}@127.0.0.1:99999"),
        format!("redis://bob:{ENCODED}@127.0.0.1/no-number"),
        format!("redis://bob:{ENCODED}@:6379"),
        format!("redis://bob:{ENCODED}@[::1"),
        format!("redis://bob:{ENCODED}@127.0.0.1?colour=red"),
        format!("redis://bob:{ENCODED}@127.0.0.1?pool=many"),
        format!("redis:bob:{ENCODED}@127.0.0.1"),
        format!("http://bob:{ENCODED}@127.0.0.1"),
        format!("{ENCODED}://127.0.0.1"),
        format!("bob:{ENCODED}"),
        ENCODED.to_owned(),
        format!("redis://bob:{ENCODED}%ff@127.0.0.1"),
        format!("unix://{ENCODED}?password={ENCODED}"),
        format!("unix:///socket?password={ENCODED}&password={ENCODED}"),
        format!("redis+sentinel://:{PASSWORD}@127.0.0.1/m?sentinel_password={PASSWORD}"),
        format!("redis+sentinel://:{ENCODED}@127.0.0.1,:{ENCODED}@127.0.0.2/m"),
        format!("redis+sentinel://127.0.0.1/m?sentinel_password={ENCODED}&colour=red"),
        format!("redis+cluster://bob:{ENCODED}@127.0.0.1,127.0.0.2/1"),
        format!("redis://:{ENCODED}@127.0.0.1,redis://:{ENCODED}@127.0.0.1"),
        format!("redis://:{ENCODED}@a,redis://:{ENCODED}@b,redis://:{ENCODED}@a"),
        format!("redis://:{PASSWORD}@a,redis://:{PASSWORD}@b,redis://:{PASSWORD}@c"),
        format!("redis://:{ENCODED}@a?pool=3,redis://b,redis://c"),
        format!("redis://a,redis://{ENCODED}@b,redis://c"),
        format!("redis://a,redis://b,{ENCODED}://c,redis://d"),
    ] {
        assert_eq!(hear_error(Client::open(&url)), ErrorKind::BadArgument, "{url}");
    }
}

#[test]
fn c12_a_password_is_in_no_error_log_line_debug_output_or_panic() {
    kit::child::alone(|| {
        log::set_logger(&Logger).unwrap();
        log::set_max_level(log::LevelFilter::Trace);
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            hear(format!("{panic}"));
            hook(panic);
        }));
        let server = Server::builder().arg("--requirepass", PASSWORD).start();
        everything_goes_well(&server);
        everything_goes_wrong(&server);
        the_url_is_wrong();
        let _ = std::panic::take_hook();

        let heard = HEARD.lock().unwrap();
        assert!(heard.len() > 60, "{heard:#?}");
        let logged = |text: &str| heard.iter().any(|line| line.contains(text));
        assert!(logged("renewal-failed lock=renewed") && logged("reason=expired"), "{heard:#?}");
        for line in heard.iter() {
            assert!(!PIECES.iter().any(|piece| line.contains(piece)), "{line}");
        }
    });
}
