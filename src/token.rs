//! The mark of one grant.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use crate::error::{Error, ErrorKind};

/// 128 random bits that mark one grant in the store, and no other: 32 lower-case hex digits.
///
/// All that know a token can release the lock that it marks, so it is handed on
/// ([`Lease::detach`](crate::Lease::detach)) and not logged: `Debug` shows its first digits only.
///
/// ```
/// let token: leasehold::Token = "00112233445566778899aabbccddeeff".parse()?;
/// assert_eq!(token.to_string(), "00112233445566778899aabbccddeeff");
/// assert_eq!(format!("{token:?}"), "Token(00112233…)");
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token([u8; 16]);

/// The length of a token as text.
pub(crate) const HEX: usize = 32;

impl Token {
    /// A new one from the operating system's random bits. Not buffered: a forked child would inherit
    /// the buffer, and so would two machines that are restored from one image, and draw the same token.
    pub(crate) fn random() -> Result<Token, Error> {
        let mut bits = [0; 16];
        getrandom::fill(&mut bits)
            .map_err(|error| Error::new(ErrorKind::Exhausted, format!("random bits: {error}")))?;
        Ok(Token(bits))
    }

    /// The 32 digits, written into `buffer`.
    pub(crate) fn hex(self, buffer: &mut [u8; HEX]) -> &str {
        Uuid::from_bytes(self.0).simple().encode_lower(buffer)
    }

    #[cfg(feature = "postgres")]
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
        write!(f, "Token({}…)", &self.hex(&mut [0; HEX])[..8])
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
