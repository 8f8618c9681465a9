//! Credentials that a program looks up while it runs.

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::bytes::{NUL, text};
use super::config::{leasehold_config, set};
use super::failure::{Failure, bad, leasehold_status};
use super::registered;
use crate::fork::PerProcess;
use crate::sync::Mutex;
use crate::{Credentials, Endpoint};

/// What a credentials function answers: it writes what it has, and leaves the rest as it is, which is NULL,
/// 0 or false. The strings end with a zero byte. They are read when the function has returned, and must
/// stay until it is called again, or until `drop` is called.
///
/// - user: whose secret it is; NULL for the user in the URL.
/// - secret: the password or the token.
/// - valid_until_ms: when the secret ends, in milliseconds since 1970 (UTC); 0 if it has no end. Then it is
///   asked for at each login.
/// - retire_connections: whether connections to PostgreSQL and MySQL that logged in with earlier
///   credentials make way for new ones. They do so anyway if the user changes.
/// - failure: why there are no credentials, for the text of the error; NULL where nothing is to be said.
#[repr(C)]
pub struct leasehold_credentials {
    pub user: *const c_char,
    pub secret: *const c_char,
    pub valid_until_ms: i64,
    pub retire_connections: bool,
    pub failure: *const c_char,
}

/// Looks up credentials for a server: see leasehold_config_set_credentials(). `host` is the path of a unix
/// socket if `port` is 0. `user` is the one in the URL, or NULL. These are borrowed for the call. Returns
/// 0, or anything else if it has failed. It must not call this library, and must return, not longjmp() or
/// throw.
pub type leasehold_credentials_fn = Option<
    unsafe extern "C" fn(
        user_data: *mut c_void,
        host: *const c_char,
        port: u16,
        user: *const c_char,
        answer: *mut leasehold_credentials,
    ) -> c_int,
>;

/// Frees what `user_data` leads to, when nobody will use it any more. It must not call this library.
pub type leasehold_credentials_drop_fn = Option<unsafe extern "C" fn(user_data: *mut c_void)>;

/// Has the credentials of the server that keeps the locks looked up while the program runs: tokens of a
/// cloud, or passwords that a vault changes. The URL then has no password. NULL takes it back.
///
/// A thread of each client, `leasehold-login`, calls `function`, one call at a time, for each server apart:
/// when the first connection needs credentials, and again before they end, at about three quarters of their
/// life. A call of this library waits for it until its own deadline. If the function fails, the last
/// credentials are used until they end, and then the error is LEASEHOLD_ERR_AUTH, with the text that the
/// function gave. Open connections to Redis log in again with the newest. If a client was opened in a
/// forked child, or is used there, the child calls the function, too. Clients of one configuration
/// wait for each other in it.
///
/// `drop` may be NULL. Else it is called once, when neither the configuration nor a client needs the
/// function any more, or if it was not set. Closing a client waits for a call of the function no longer
/// than for anything else.
///
/// Returns as leasehold_config_set_prefix(). Any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leasehold_config_set_credentials(
    config: *mut leasehold_config,
    function: leasehold_credentials_fn,
    user_data: *mut c_void,
    drop: leasehold_credentials_drop_fn,
) -> leasehold_status {
    let data =
        Arc::new(UserData { data: user_data, drop, running: PerProcess::new(Mutex::new(())) });
    set(config, "credentials", move |_, config| {
        Ok(match function {
            None => config.without_credentials(),
            Some(function) => config.credentials(move |endpoint| ask(function, &data, endpoint)),
        })
    })
}

type Function = unsafe extern "C" fn(
    *mut c_void,
    *const c_char,
    u16,
    *const c_char,
    *mut leasehold_credentials,
) -> c_int;

struct UserData {
    data: *mut c_void,
    drop: leasehold_credentials_drop_fn,
    /// While the function runs, and what it answered is read. A forked child has not inherited it locked.
    running: PerProcess<Mutex<()>>,
}

// SAFETY: the header says on which thread the function is called and the data freed, and asks for data for
// which that is right; nobody else follows the pointer.
unsafe impl Send for UserData {}
// SAFETY: as above. `running` has the calls of several clients come one after the other.
unsafe impl Sync for UserData {}

impl Drop for UserData {
    fn drop(&mut self) {
        if let Some(drop) = self.drop {
            // SAFETY: the header asks for a function that may be called so; a value is dropped once.
            unsafe { drop(self.data) };
        }
    }
}

fn ask(function: Function, data: &UserData, endpoint: &Endpoint) -> Result<Credentials, String> {
    let none = std::ptr::null();
    let mut answer = leasehold_credentials {
        user: none,
        secret: none,
        valid_until_ms: 0,
        retire_connections: false,
        failure: none,
    };
    let host = CString::new(&*endpoint.host).map_err(|_| "the host has a zero byte")?;
    let user = endpoint.user.as_deref().map(CString::new).transpose();
    let user = user.map_err(|_| "the user has a zero byte")?;
    let user = user.as_ref().map_or(none, |user| user.as_ptr());
    let running = data.running.get_or_make(|| Ok(Mutex::new(())));
    let _running = running.map_err(|error| error.to_string())?.lock();
    // SAFETY: the header asks for a function that may be called so, with this data.
    let failed = registered::inside(|| unsafe {
        function(data.data, host.as_ptr(), endpoint.port, user, &raw mut answer)
    });
    read(&answer, failed != 0).map_err(|failure| failure.detail)
}

fn read(answer: &leasehold_credentials, has_failed: bool) -> Result<Credentials, Failure> {
    let text = |what, from: *const c_char| match from.is_null() {
        true => Ok(None),
        false => text(what, from, NUL).map(Some),
    };
    if has_failed || !answer.failure.is_null() {
        let why = text("text of the failure", answer.failure)?;
        return Err(bad(why.unwrap_or("it does not say why")));
    }
    let secret = text("secret", answer.secret)?.ok_or_else(|| bad("it returned no secret"))?;
    let mut credentials = Credentials::new(secret).retire_connections(answer.retire_connections);
    if let Some(user) = text("user", answer.user)? {
        credentials = credentials.user(user);
    }
    if answer.valid_until_ms != 0 {
        let since = Duration::from_millis(u64::try_from(answer.valid_until_ms).unwrap_or(0));
        let end = SystemTime::UNIX_EPOCH.checked_add(since);
        credentials = credentials.valid_until(end.unwrap_or(SystemTime::UNIX_EPOCH));
    }
    Ok(credentials)
}
