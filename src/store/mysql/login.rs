//! Who we are there: the first packets of a connection, TLS and the password.

use sha1_smol::Sha1;
use sha2::{Digest, Sha256};

use super::wire::{Fields, Wire, unexpected};
use crate::clock::Deadline;
use crate::config::{Access, Address, Secret, TlsWords};
use crate::error::{Error, ErrorKind};
use crate::store::net::seat::Line;
use crate::store::net::tls::Tls;

/// What the server says first.
pub(super) struct Greeting {
    scramble: Vec<u8>,
    plugin: Vec<u8>,
    has_tls: bool,
}

// What this client can do, as bits of the protocol.
const FOUND_ROWS: u32 = 0x2;
const CONNECT_WITH_DB: u32 = 0x8;
const PROTOCOL_41: u32 = 0x200;
const TLS: u32 = 0x800;
const TRANSACTIONS: u32 = 0x2000;
const SECURE_CONNECTION: u32 = 0x8000;
const MULTI_STATEMENTS: u32 = 0x1_0000;
const MULTI_RESULTS: u32 = 0x2_0000;
const PLUGIN_AUTH: u32 = 0x8_0000;
const OURS: u32 = FOUND_ROWS
    | CONNECT_WITH_DB
    | PROTOCOL_41
    | TRANSACTIONS
    | SECURE_CONNECTION
    | MULTI_STATEMENTS
    | MULTI_RESULTS
    | PLUGIN_AUTH;

const NATIVE: &[u8] = b"mysql_native_password";
const SHA2: &[u8] = b"caching_sha2_password";

const LONGEST_PACKET: u32 = 1 << 24;
/// utf8mb4_general_ci.
const CHARSET: u8 = 45;

const NO_PASSWORD: &str = "the server wants a password: write mysql://user:password@host/database";
const IN_THE_CLEAR: &str = "the server wants the password itself, as caching_sha2_password does until \
     it has seen it once, and the connection is not encrypted: write ssl-mode=verify_identity (or \
     required), use a unix socket, or ALTER USER ... IDENTIFIED WITH mysql_native_password";

/// The first packet. One who does not send it may be no MySQL.
pub(super) fn greeting(wire: &mut Wire, deadline: Deadline) -> Result<Greeting, Error> {
    Greeting::read(&wire.packet(deadline)?)
}

/// Up to the server's consent.
pub(super) fn log_in(
    wire: &mut Wire,
    greeting: Greeting,
    address: &Address,
    (access, database): (&Access, &str),
    tls: Option<&Tls>,
    deadline: Deadline,
) -> Result<(), Error> {
    let mut flags = OURS;
    let head = |flags: u32| {
        let mut head = [flags.to_le_bytes(), LONGEST_PACKET.to_le_bytes()].concat();
        head.push(CHARSET);
        head.extend_from_slice(&[0; 23]);
        head
    };
    if let Some(tls) = tls {
        if !greeting.has_tls {
            let off = TlsWords::MYSQL.off;
            let mend = format!("turn it on there, or write {off}");
            return Err(Error::new(ErrorKind::Tls, format!("the server has no TLS: {mend}")));
        }
        flags |= TLS;
        wire.write(&head(flags))?;
        wire.send(deadline).map_err(|(_, error)| error)?;
        // What stands behind the greeting came before the encryption: anybody can have written it.
        if wire.has_more() {
            return Err(Error::new(ErrorKind::Tls, "the server spoke before the encryption began"));
        }
        wire.stream.secure(tls, address, deadline)?;
    }
    let is_private = tls.is_some() || matches!(address, Address::Unix(_));
    let known = [NATIVE, SHA2].into_iter().find(|known| *known == greeting.plugin);
    // The server asks for another one if this user has another one.
    let mut plugin = known.unwrap_or(NATIVE);
    let mut scramble = greeting.scramble;
    let shown = proof(plugin, access.password.as_ref(), &scramble);
    let mut hello = head(flags);
    hello.extend_from_slice(access.user.as_deref().unwrap_or_default().as_bytes());
    hello.push(0);
    hello.push(u8::try_from(shown.len()).unwrap_or(0));
    hello.extend_from_slice(&shown);
    hello.extend_from_slice(&[database.as_bytes(), b"\0", plugin, b"\0"].concat());
    wire.write(&hello)?;
    loop {
        wire.send(deadline).map_err(|(_, error)| error)?;
        let packet = wire.packet(deadline)?;
        let mut fields = Fields(&packet);
        match (fields.byte()?, fields.0.first()) {
            (0, _) => return Ok(()),
            (0xff, _) => {
                let refusal = fields.refusal()?;
                // The same number says that the password is missing and that it is wrong.
                return Err(match access.password {
                    None if refusal.code == 1045 => Error::new(
                        ErrorKind::Auth,
                        format!("{NO_PASSWORD} ({})", refusal.error.detail()),
                    ),
                    _ => refusal.error,
                });
            }
            (0xfe, Some(_)) => {
                let wanted = fields.text();
                plugin =
                    [NATIVE, SHA2].into_iter().find(|known| *known == wanted).ok_or_else(|| {
                        let wanted = String::from_utf8_lossy(wanted);
                        Error::new(
                            ErrorKind::Auth,
                            format!(
                                "the user logs in by {wanted}, which is not \
                         known here: mysql_native_password and caching_sha2_password are"
                            ),
                        )
                    })?;
                scramble = fields.text().to_vec();
                wire.write(&proof(plugin, access.password.as_ref(), &scramble))?;
            }
            // The password was seen before, and consent follows.
            (1, Some(3)) if plugin == SHA2 => {}
            (1, Some(4)) if plugin == SHA2 => {
                let Some(Secret(password)) = &access.password else {
                    return Err(Error::new(ErrorKind::Auth, NO_PASSWORD));
                };
                if !is_private {
                    return Err(Error::new(ErrorKind::Auth, IN_THE_CLEAR));
                }
                wire.write(&[password.as_bytes(), b"\0"].concat())?;
            }
            _ => return Err(unexpected("something else than is known")),
        }
    }
}

impl Greeting {
    fn read(packet: &[u8]) -> Result<Greeting, Error> {
        let mut fields = Fields(packet);
        match fields.byte()? {
            10 => {}
            0xff => return Err(fields.refusal()?.error),
            _ => return Err(unexpected("something that is not MySQL's")),
        }
        fields.text();
        fields.take(4)?;
        let mut scramble = fields.take(8)?.to_vec();
        fields.take(1)?;
        let low = fields.short()?;
        fields.take(3)?;
        let high = fields.short()?;
        let length = usize::from(fields.byte()?);
        fields.take(10)?;
        // The last byte of it is a zero.
        scramble.extend_from_slice(fields.take(length.saturating_sub(8).max(13))?);
        scramble.pop();
        let has = |flag: u32| (u32::from(high) << 16 | u32::from(low)) & flag != 0;
        if !has(PLUGIN_AUTH) || !has(MULTI_STATEMENTS) {
            return Err(Error::new(
                ErrorKind::Protocol,
                "the server is too old, or a proxy that \
                 carries no several statements in a packet",
            ));
        }
        Ok(Greeting { scramble, plugin: fields.text().to_vec(), has_tls: has(TLS) })
    }
}

/// What shows that we know the password, for this connection alone.
fn proof(plugin: &[u8], password: Option<&Secret>, scramble: &[u8]) -> Vec<u8> {
    let Some(Secret(password)) = password.filter(|password| !password.0.is_empty()) else {
        return Vec::new();
    };
    let mix = |one: &[u8], other: &[u8]| one.iter().zip(other).map(|(a, b)| a ^ b).collect();
    if plugin == NATIVE {
        let sha1 = |bytes: &[u8]| Sha1::from(bytes).digest().bytes();
        let once = sha1(password.as_bytes());
        mix(&once, &sha1(&[scramble, &sha1(&once)].concat()))
    } else {
        let once = Sha256::digest(password.as_bytes());
        mix(&once, &Sha256::digest([&*Sha256::digest(once), scramble].concat()))
    }
}
