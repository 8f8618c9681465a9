//! Who we are: the first words to a server, and how a password is told.

use fallible_iterator::FallibleIterator;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{
    self, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramSha256,
};
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;

use super::wire::{Refusal, Wire, unexpected};
use crate::clock::Deadline;
use crate::config::{Access, ChannelBinding, PostgresConfig};
use crate::error::{Error, ErrorKind};
use crate::store::net::seat::Line;

/// The server's default is 4,096.
const MOST_ITERATIONS: u64 = 100_000;

const UNBOUND: &str = "channel_binding=require: the server binds no login to its certificate (it has to ask for a \
     password by SCRAM, over TLS that ends at itself)";

/// Returns the number of the process that serves us, as far as it is the server that says so.
pub(super) fn log_in(
    wire: &mut Wire,
    config: &PostgresConfig,
    access: &Access,
    deadline: Deadline,
) -> Result<i32, Error> {
    let PostgresConfig { database, application, options, .. } = config;
    let user = access.user.as_deref().unwrap_or_default();
    let parameters = [
        ("user", user),
        ("database", database),
        ("application_name", application),
        ("client_encoding", "UTF8"),
    ];
    let options = options.as_deref().map(|options| ("options", options));
    let parameters = parameters.into_iter().chain(options);
    wire.write(|out| frontend::startup_message(parameters, out))?;
    wire.send(deadline).map_err(|(_, error)| error)?;
    let (mut process, mut scram) = (0, None::<ScramSha256>);
    let (mut is_binding, mut is_bound) = (false, false);
    let password = || {
        let none = "the server wants a password: write postgres://user:password@host/database";
        let password = access.password.as_ref().map(|password| password.0.as_bytes());
        password.ok_or_else(|| Error::new(ErrorKind::Auth, none))
    };
    let liar = |_| Error::new(ErrorKind::Auth, "the server does not know the password either");
    loop {
        match wire.receive(deadline)? {
            Message::AuthenticationOk
            | Message::AuthenticationCleartextPassword
            | Message::AuthenticationMd5Password(_)
            | Message::ReadyForQuery(_)
                if !is_bound && config.channel_binding == ChannelBinding::Always =>
            {
                return Err(Error::new(ErrorKind::Auth, UNBOUND));
            }
            Message::AuthenticationOk => {}
            Message::AuthenticationCleartextPassword => {
                let password = password()?;
                wire.write(|out| frontend::password_message(password, out))?;
            }
            Message::AuthenticationMd5Password(body) => {
                let hash = md5_hash(user.as_bytes(), password()?, body.salt());
                wire.write(|out| frontend::password_message(hash.as_bytes(), out))?;
            }
            Message::AuthenticationSasl(body) => {
                let known = body.mechanisms().any(|name| Ok(name == SCRAM_SHA_256_PLUS));
                let knows_bound = known.map_err(|error| unexpected(&error.to_string()))?;
                let (name, binding) = binding(wire, config.channel_binding, knows_bound)?;
                is_binding = name == SCRAM_SHA_256_PLUS;
                let begun = ScramSha256::new(password()?, binding);
                wire.write(|out| frontend::sasl_initial_response(name, begun.message(), out))?;
                scram = Some(begun);
            }
            Message::AuthenticationSaslContinue(body) => {
                let begun = scram.as_mut().ok_or_else(|| unexpected("too much"))?;
                check_iterations(body.data())?;
                begun.update(body.data()).map_err(|error| unexpected(&error.to_string()))?;
                wire.write(|out| frontend::sasl_response(begun.message(), out))?;
            }
            Message::AuthenticationSaslFinal(body) => {
                let begun = scram.as_mut().ok_or_else(|| unexpected("too much"))?;
                begun.finish(body.data()).map_err(liar)?;
                is_bound = is_binding;
            }
            Message::AuthenticationGss
            | Message::AuthenticationKerberosV5
            | Message::AuthenticationScmCredential
            | Message::AuthenticationSspi => {
                let other = "the server asks for Kerberos or the like; only passwords and what \
                     needs nothing (peer, trust, certificates) are known here";
                return Err(Error::new(ErrorKind::Auth, other));
            }
            Message::BackendKeyData(body) => process = body.process_id(),
            Message::ErrorResponse(body) => return Err(Refusal::read(body.fields()).error),
            Message::ReadyForQuery(_) => return Ok(process),
            _ => {}
        }
        wire.send(deadline).map_err(|(_, error)| error)?;
    }
}

/// How SCRAM goes on: bound to the certificate that the server showed, where both know that. Who does,
/// says so even where the server does not, so that nobody between the two can hide it.
fn binding(
    wire: &Wire,
    wanted: ChannelBinding,
    knows_bound: bool,
) -> Result<(&'static str, sasl::ChannelBinding), Error> {
    let seen = wire.end_point().filter(|_| wanted != ChannelBinding::Never);
    Ok(match (seen, knows_bound) {
        (Some(seen), true) => {
            (SCRAM_SHA_256_PLUS, sasl::ChannelBinding::tls_server_end_point(seen))
        }
        _ if wanted == ChannelBinding::Always => return Err(Error::new(ErrorKind::Auth, UNBOUND)),
        (Some(_), false) => (SCRAM_SHA_256, sasl::ChannelBinding::unrequested()),
        (None, _) => (SCRAM_SHA_256, sasl::ChannelBinding::unsupported()),
    })
}

/// Each takes time, which no deadline ends.
fn check_iterations(said: &[u8]) -> Result<(), Error> {
    let said = String::from_utf8_lossy(said);
    let asked = said.split(',').find_map(|part| part.strip_prefix("i=")).unwrap_or("0");
    if asked.parse::<u64>().is_ok_and(|asked| asked <= MOST_ITERATIONS) {
        return Ok(());
    }
    let many = format!(
        "the server asks for {asked} iterations of SCRAM, and {MOST_ITERATIONS} are the most that \
         are made here: set the password anew, with a smaller scram_iterations"
    );
    Err(Error::new(ErrorKind::Auth, many))
}

#[cfg(test)]
#[cfg(feature = "tls")]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;
    use crate::config::{Config, StoreConfig};
    use crate::store::ServerId;
    use crate::store::net::stream::Stream;

    /// Somebody between the server and us could say any of it.
    #[test]
    fn c12_a_login_that_has_to_be_bound_is_over_in_no_other_way() {
        let url = "postgres://u:p@h/d?sslmode=require&channel_binding=require";
        let StoreConfig::Postgres(config) = Config::from_url(url).unwrap().store else { panic!() };
        const READY: &[u8] = b"Z\0\0\0\x05I";
        const OK: &[u8] = b"R\0\0\0\x08\0\0\0\0";
        const IN_CLEAR: &[u8] = b"R\0\0\0\x08\0\0\0\x03";
        const UNBOUND_ONLY: &[u8] = b"R\0\0\0\x17\0\0\0\x0aSCRAM-SHA-256\0\0";
        for said in [READY, OK, IN_CLEAR, UNBOUND_ONLY] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.write_all(&[said, READY].concat()).unwrap();
            let mut wire = Wire::new(Stream::new(ours.into()), ServerId::default());
            let by = Deadline::after(Duration::from_secs(20));
            let error = log_in(&mut wire, &config, &config.access, by).unwrap_err();
            assert!(error.detail().contains("binds no login"), "{said:?}: {error}");
        }
    }
}
