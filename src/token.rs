//! The mark of one grant.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use crate::error::{Error, ErrorKind};

/// 128 bits that mark one grant in the store, and no other: 32 lower-case hex digits. The first 12
/// are those of the client that took the lock ([`ClientInfo`](crate::ClientInfo)); the others are
/// random.
///
/// All that know a token can release the lock that it marks, so it is handed on
/// ([`Lease::detach`](crate::Lease::detach)) and not logged: `Debug` shows its first digits only.
///
/// ```
/// let token: leasehold::Token = "00112233445566778899aabbccddeeff".parse()?;
/// assert_eq!(token.to_string(), "00112233445566778899aabbccddeeff");
/// assert_eq!(format!("{token:?}"), "Token(0011223344556677…)");
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token([u8; 16]);

/// The length of a token as text.
pub(crate) const HEX: usize = 32;
/// So many digits of a token may be seen: those of its client, and some by which its grants are told
/// apart.
const SHOWN: usize = 16;

/// What all tokens of one client begin with: random bits, drawn anew in each process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct ClientId([u8; 6]);

impl ClientId {
    pub(crate) fn draw() -> Result<ClientId, Error> {
        let mut bits = [0; 6];
        fill(&mut bits)?;
        Ok(ClientId(bits))
    }

    /// Whose token it is that begins so.
    pub(crate) fn of(shown: &str) -> Option<ClientId> {
        let digits = shown.get(..12).filter(|it| it.bytes().all(|b| b.is_ascii_hexdigit()))?;
        let bits = u64::from_str_radix(digits, 16).ok()?.to_be_bytes();
        let [_, _, bits @ ..] = bits;
        Some(ClientId(bits))
    }

    #[cfg(any(feature = "mysql", feature = "postgres", feature = "zookeeper"))]
    pub(crate) fn number(self) -> u64 {
        self.0.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// From the operating system. Not buffered: a forked child would inherit the buffer, and so would two
/// machines that are restored from one image, and draw the same.
fn fill(bits: &mut [u8]) -> Result<(), Error> {
    getrandom::fill(bits)
        .map_err(|error| Error::new(ErrorKind::Exhausted, format!("random bits: {error}")))
}

impl Token {
    /// A new one of a client's.
    pub(crate) fn of(client: ClientId) -> Result<Token, Error> {
        let mut bits = [0; 16];
        let (whose, rest) = bits.split_at_mut(client.0.len());
        whose.copy_from_slice(&client.0);
        fill(rest)?;
        Ok(Token(bits))
    }

    #[cfg(feature = "etcd")]
    pub(crate) fn client(self) -> ClientId {
        let [bits @ .., _, _, _, _, _, _, _, _, _, _] = self.0;
        ClientId(bits)
    }

    /// One that is nobody's, for what needs 128 random bits.
    pub(crate) fn random() -> Result<Token, Error> {
        let mut bits = [0; 16];
        fill(&mut bits)?;
        Ok(Token(bits))
    }

    /// The digits that everybody may see: too few to release with.
    pub(crate) fn shown(self) -> String {
        self.hex(&mut [0; HEX])[..SHOWN].to_owned()
    }

    /// The 32 digits, written into `buffer`.
    pub(crate) fn hex(self, buffer: &mut [u8; HEX]) -> &str {
        Uuid::from_bytes(self.0).simple().encode_lower(buffer)
    }

    #[cfg(any(feature = "mysql", feature = "postgres", feature = "etcd"))]
    pub(crate) fn from_bits(bits: [u8; 16]) -> Token {
        Token(bits)
    }

    #[cfg(any(feature = "mysql", feature = "postgres", feature = "etcd"))]
    pub(crate) fn bits(self) -> [u8; 16] {
        self.0
    }

    /// What marks a lock that was detached under this fence and not attached yet. No
    /// client holds it under that, and only token and fence together make it.
    pub(crate) fn detached(self, fence: u64) -> Token {
        Token((u128::from_be_bytes(self.0) ^ u128::from(fence)).to_be_bytes())
    }

    /// A number that differs from token to token, to seed what need not be secret.
    pub(crate) fn seed(self) -> u64 {
        self.0.iter().fold(0, |seed, byte| (seed << 7) ^ (seed >> 57) ^ u64::from(*byte))
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.hex(&mut [0; HEX]))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}…)", self.shown())
    }
}

impl FromStr for Token {
    type Err = Error;

    /// # Errors
    /// [`ErrorKind::BadArgument`] for anything but 32 lower-case hex digits.
    fn from_str(text: &str) -> Result<Token, Error> {
        let ours =
            text.len() == HEX && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        match Uuid::try_parse(text) {
            Ok(bits) if ours => Ok(Token(bits.into_bytes())),
            _ => Err(Error::new(ErrorKind::BadArgument, "a token is 32 lower-case hex digits")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_read_back_and_differ() {
        let token = Token::random().unwrap();
        assert_eq!(token.to_string().parse::<Token>().unwrap(), token);
        assert_ne!(token, Token::random().unwrap());
    }

    #[test]
    fn all_tokens_of_a_client_begin_with_its_digits() {
        let client = ClientId::draw().unwrap();
        let [one, two] = [(); 2].map(|()| Token::of(client).unwrap());
        assert!(one != two && one.shown() != two.shown() && one.seed() != two.seed());
        for token in [one, two, one.detached(crate::limits::MAX_FENCE)] {
            assert!(token.to_string().starts_with(&client.to_string()));
            assert_eq!(ClientId::of(&token.shown()), Some(client));
        }
        assert_ne!(client, ClientId::draw().unwrap());
        for text in ["", "00112233445", "0011223344é5", "+01122334455 "] {
            assert_eq!(ClientId::of(text), None, "{text}");
        }
    }

    #[test]
    fn what_is_detached_is_marked_by_the_token_and_the_fence() {
        let token: Token = "00112233445566778899aabbccddeeff".parse().unwrap();
        let mark = token.detached(256);
        assert_eq!(mark.to_string(), "00112233445566778899aabbccddefff");
        assert_eq!(mark.detached(256), token);
        assert!(mark != token.detached(257) && token.detached(crate::limits::MAX_FENCE) != token);
    }

    #[test]
    fn nothing_but_32_lower_case_digits_is_a_token() {
        for text in
            ["", "00", "00112233445566778899AABBCCDDEEFF", "00112233-4455-6677-8899-aabbccddeeff"]
        {
            assert!(text.parse::<Token>().is_err(), "{text}");
        }
    }
}
