//! How a client is set up.

use std::ffi::c_char;

use super::boundary::{self, leasehold_error};
use super::bytes::{CBytes, NUL, bytes, span, text};
use super::failure::{Failure, bad, leasehold_status};
use super::settings::{ADDED, Settings};
use super::table;
use crate::Config;
use crate::config::limits::MAX_NAME;
use crate::config::parse_duration;
use crate::sync::Mutex;

/// How a client is set up: a URL, and what a program would rather set in code. Free it with
/// leasehold_config_free().
pub struct leasehold_config {
    pub(super) settings: Mutex<Settings<Config>>,
    store: CBytes,
}

impl table::Handled for leasehold_config {}

/// More URLs than any quorum has.
const MAX_URLS: usize = 64;

impl leasehold_config {
    fn new(config: Config) -> leasehold_config {
        let (store, config) = (CBytes::new(config.display_store()), config.language("c"));
        leasehold_config { settings: Mutex::new(Settings::new(config)), store }
    }
}

pub(super) fn set(
    config: *mut leasehold_config,
    what: &'static str,
    change: impl FnOnce(&'static str, Config) -> Result<Config, Failure>,
) -> leasehold_status {
    boundary::call(std::ptr::null_mut(), || {
        table::get(config)?.settings.lock().set(what, |what, config| {
            let config = change(what, config)?;
            config.check()?;
            Ok(config)
        })
    })
}

/// Reads a URL, of `url_length` bytes or LEASEHOLD_NUL.
///
/// ```text
///     redis://[user[:password]@]host[:port][/database]   one Redis or Valkey over TCP
///     unix:///path/to/socket                             one Redis on a unix socket
///     redis+sentinel://[user:password@]host[:port],host2/master[/database]
///                                                        the Redis that Sentinels call the master
///     redis+cluster://[user:password@]host[:port],host2  a Redis Cluster, found by some of
///                                                        its servers
///     rediss://, rediss+sentinel://, rediss+cluster://   the same over TLS
///     redis://a,redis://b,redis://c                      a quorum: an odd number of the above,
///                                                        with commas between them
///     sqlite:///path/to/file, sqlite:file                an SQLite file, made
///                                                        with its folder where missing
///     sqlite:                                            the embedded store, one per user
///     memory:name                                        the store in memory that a test has made in
///                                                        this process: leasehold_testing_memory_open()
///     postgres://user[:password]@host[:port][,host2][/database]
///                                                        a table of a PostgreSQL, where the
///                                                        library is built with postgres
///     mysql://user[:password]@host[:port][,host2]/database
///                                                        tables of a MySQL or a MariaDB, where
///                                                        the library is built with mysql
///     zookeeper://[user:password@]host[:port][,host2][/chroot]
///                                                        nodes of a ZooKeeper, where the
///                                                        library is built with zookeeper
///     etcd://[user:password@]host[:port][,host2], etcds://
///                                                        an etcd, with TLS etcds, where the library
///                                                        is built with etcd
/// ```
///
/// Any of them takes ?prefix=, io_timeout=, pool=, close_timeout=, claim_window=, max_ttl=, label=,
/// register= and advise=, as in "redis://cache?io_timeout=300ms&pool=16"; servers also replicas=,
/// guard_data_loss= and fence_life=; those over TLS ca=, cert= and key=, which name PEM files; unix user=, password=
/// and db=; Sentinels sentinel_user=, sentinel_password= and sentinel_tls=. In place of a password,
/// password_file= (and sentinel_password_file=) names a file that has it, and password_command= (and
/// sentinel_password_command=) a command that prints it; each login reads or runs it again. In a quorum, what concerns the client as a whole stands on the last URL. A user's name, a password or a
/// parameter may hold any character, written as % and two hex digits. max_ttl is the longest ttl
/// that a lock may have: 366 days by default, and 60 seconds in a quorum and with
/// guard_data_loss=yes.
///
/// Any thread. Errors: LEASEHOLD_ERR_BAD_ARGUMENT for a malformed URL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_config_from_url(
    url: *const c_char,
    url_length: usize,
    config: *mut *mut leasehold_config,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::open(error, "config", config, || {
        let url = text("URL", url, url_length)?;
        Ok(leasehold_config::new(Config::from_url(url)?))
    })
}

/// Reads the URLs of a quorum, `count` of them, each ended by a zero byte: an odd number of
/// independent servers, of which a majority grants a lock. One alone means what
/// leasehold_config_from_url() reads. Any thread. Errors: LEASEHOLD_ERR_BAD_ARGUMENT for a
/// malformed URL, and for what is no quorum.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_config_from_urls(
    urls: *const *const c_char,
    count: usize,
    config: *mut *mut leasehold_config,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::open(error, "config", config, || {
        if urls.is_null() || count > MAX_URLS {
            return Err(bad(format!("there are {count} URLs, or none; {MAX_URLS} are the most")));
        }
        // SAFETY: not NULL, and by this function's contract so many, unchanged during the call.
        let urls = unsafe { std::slice::from_raw_parts(urls, count) };
        let urls = urls.iter().map(|url| text("URL", *url, NUL)).collect::<Result<Vec<_>, _>>()?;
        Ok(leasehold_config::new(Config::from_urls(urls)?))
    })
}

/// Takes the URL from the environment variable LEASEHOLD_URL, or else from the file
/// /etc/leasehold.conf (another one, if LEASEHOLD_CONF names it), or else the embedded store,
/// "sqlite:": a file for this user on this machine only, which the log says at LEASEHOLD_LOG_WARN.
/// The command `leasehold` does the same. Any thread, as long as none changes the environment.
/// Errors: LEASEHOLD_ERR_BAD_ARGUMENT for a malformed URL or file, a variable that is empty or seems
/// to be a misspelt one, and where LEASEHOLD_REQUIRE_URL=1 is set and there is no URL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_config_from_env(
    config: *mut *mut leasehold_config,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::open(error, "config", config, || Ok(leasehold_config::new(Config::from_env()?)))
}

/// Sets what is put before every name in the store: any bytes, none by default. On Redis, where a
/// name is a key among others, "lock:" or the like sets locks apart.
///
/// The setters of a configuration return LEASEHOLD_OK, LEASEHOLD_ERR_BAD_ARGUMENT (then opening a
/// client with it fails too, until the setting is made well; leasehold_config_check() has the
/// reason), or LEASEHOLD_ERR_SEALED: a client has been opened with it, which goes on with what it
/// was opened with. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_config_set_prefix(
    config: *mut leasehold_config,
    prefix: *const c_char,
    prefix_length: usize,
) -> leasehold_status {
    set(config, "prefix", |what, config| {
        Ok(config.prefix(bytes(what, prefix, prefix_length, MAX_NAME)?))
    })
}

/// Sets how long the store may take to answer one request, connecting included: 1000 ms by
/// default, from 1 ms to an hour. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_config_set_io_timeout_ms(
    config: *mut leasehold_config,
    timeout_ms: i64,
) -> leasehold_status {
    set(config, "io_timeout", |what, config| Ok(config.io_timeout(span(what, timeout_ms)?)))
}

/// Sets how many requests may be under way at once: 8 by default, from 1 to 1024. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_config_set_pool(
    config: *mut leasehold_config,
    connections: u32,
) -> leasehold_status {
    set(config, "pool", |_, config| Ok(config.pool(connections)))
}

/// Sets how long closing goes on releasing leases: 1000 ms by default, an hour at most. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_config_set_close_timeout_ms(
    config: *mut leasehold_config,
    timeout_ms: i64,
) -> leasehold_status {
    set(config, "close_timeout", |what, config| Ok(config.close_timeout(span(what, timeout_ms)?)))
}

/// Sets how long a lock that was handed to a waiter stays with it before it must have answered: what
/// one that died just then costs those behind it. 1000 ms by default, 50 ms to 60 s. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_config_set_claim_window_ms(
    config: *mut leasehold_config,
    window_ms: i64,
) -> leasehold_status {
    set(config, "claim_window", |what, config| Ok(config.claim_window(span(what, window_ms)?)))
}

/// Sets the longest ttl that a lock may have: 366 days by default, and 60 s in a store that guards
/// against lost data; from 1 s to 366 days, in a quorum to 24 h. A server that came back without its
/// data grants nothing for as long, so all clients of such a store should have the same. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_config_set_max_ttl_ms(
    config: *mut leasehold_config,
    most_ms: i64,
) -> leasehold_status {
    set(config, "max_ttl", |what, config| Ok(config.max_ttl(span(what, most_ms)?)))
}

/// Sets whether a server that may have lost data grants nothing until every lease that it has
/// forgotten must be over. Off by default, except in a quorum, where it is always on; a file needs
/// no guard, and refuses it. leasehold_client_initialize() declares new servers. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_config_set_guard_data_loss(
    config: *mut leasehold_config,
    on: bool,
) -> leasehold_status {
    set(config, "guard_data_loss", |_, config| Ok(config.guard_data_loss(on)))
}

/// Sets a word of the program's own, text of 100 bytes at most, which others see beside its name when
/// they look who has a lock: the tenant, the queue, the release. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_config_set_label(
    config: *mut leasehold_config,
    label: *const c_char,
    label_length: usize,
) -> leasehold_status {
    set(config, "label", |what, config| Ok(config.label(text(what, label, label_length)?)))
}

/// Sets whether the client says in the store who it is, so that others see who has a lock and who
/// waits: on by default. Once soon after the first lease or wait, then once a minute while there are
/// any, and beside all calls. A client that may not do so goes on without. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_config_set_register(
    config: *mut leasehold_config,
    on: bool,
) -> leasehold_status {
    set(config, "register", |_, config| Ok(config.register(on)))
}

/// Sets whether the log has a line, `unguarded`, where the store could lose grants when a server restarts
/// or fails over, and nothing guards against that: on by default. The client finds out once, soon after
/// the first lease or wait and beside all calls. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_config_set_advise(
    config: *mut leasehold_config,
    on: bool,
) -> leasehold_status {
    set(config, "advise", |_, config| Ok(config.advise(on)))
}

/// Sets what the program is called, as others see it: by default as the file of its command. Text.
/// Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_config_set_program(
    config: *mut leasehold_config,
    program: *const c_char,
    program_length: usize,
) -> leasehold_status {
    set(config, "program", |what, config| Ok(config.program(text(what, program, program_length)?)))
}

/// Sets what the program is written in, as others see it: "c" by default. Text. For bindings of other
/// languages. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_config_set_language(
    config: *mut leasehold_config,
    language: *const c_char,
    language_length: usize,
) -> leasehold_status {
    set(config, "language", |what, config| {
        Ok(config.language(text(what, language, language_length)?))
    })
}

/// Counts the locks of some names apart: in leasehold_client_metrics() they have this for a label,
/// instead of "*". It is a name, or how names begin and a `*`, as in "stock:*"; where several fit, the
/// longest counts. 32 at most, each added by a call: what users type is often part of a name, and must
/// not make series. One that was refused stays so, whatever is added after it. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_config_add_metrics_group(
    config: *mut leasehold_config,
    pattern: *const c_char,
    pattern_length: usize,
) -> leasehold_status {
    set(config, ADDED, |what, config| {
        Ok(config.metrics_group(text(what, pattern, pattern_length)?))
    })
}

/// What a setter of this configuration has refused, with the reason, while the setting is not made
/// well; LEASEHOLD_OK when nothing is. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_config_check(
    config: *const leasehold_config,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::call(error, || table::get(config)?.settings.lock().read().map(drop))
}

/// The store as people may see it, without user and password. Borrowed. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_config_store(config: *const leasehold_config) -> *const c_char {
    boundary::string(config, std::ptr::null_mut(), |config| &config.store)
}

/// Frees a configuration. Clients that were opened with it go on. Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_config_free(config: *mut leasehold_config) {
    boundary::free(config, drop);
}

/// Reads a duration as people write it, of `text_length` bytes or LEASEHOLD_NUL: "250ms", "10s",
/// "1.5s", "5m", "1h30m" or "1d". A bare "0" is a duration too; any other number needs its unit.
/// Writes `*ms` on success, in milliseconds, rounded up. Any thread. Errors:
/// LEASEHOLD_ERR_BAD_ARGUMENT for anything else.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_duration_parse(
    text: *const c_char,
    text_length: usize,
    ms: *mut i64,
    error: *mut *mut leasehold_error,
) -> leasehold_status {
    boundary::output(error, "ms", ms, || {
        let span = parse_duration(self::text("duration", text, text_length)?)?;
        let whole = span.as_nanos().div_ceil(1_000_000);
        Ok(i64::try_from(whole).unwrap_or(i64::MAX))
    })
}
