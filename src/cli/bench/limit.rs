//! The bare limit: the bytes of one cycle, prepared once, over a bare socket. Nobody can take a
//! lock and give it back with these scripts in less.

use super::bare::{Bare, pack};
use super::record::Recorded;
use crate::exit::Failure;

pub(super) struct Limit {
    bare: Bare,
    take: Template,
    give: Template,
    /// Each cycle's token is new, as the library's are: 16 digits by chance, 16 counted.
    token: Vec<u8>,
    turn: u64,
    fence_length: usize,
    /// How the server answers a give that found nothing to give.
    nothing: Vec<u8>,
}

/// A packed command with the places where token and fence stand in it.
pub(super) struct Template {
    pub(super) bytes: Vec<u8>,
    pub(super) tokens: Vec<usize>,
    pub(super) fences: Vec<usize>,
}

impl Limit {
    pub(super) fn new(recorded: &Recorded, bare: Bare) -> Result<Limit, Failure> {
        let mut limit = Limit {
            bare,
            take: Template::new(&recorded.take, recorded),
            give: Template::new(&recorded.give, recorded),
            token: recorded.token.clone(),
            fence_length: recorded.fence.len(),
            turn: 0,
            nothing: Vec::new(),
        };
        limit.new_token();
        limit.nothing = limit.bare.exchange(&limit.give.bytes)?.to_vec();
        if limit.nothing.starts_with(b"-") {
            return Err(unexpected("give", &limit.nothing));
        }
        Ok(limit)
    }

    /// Takes the lock and gives it back.
    pub(super) fn cycle(&mut self) -> Result<(), Failure> {
        self.new_token();
        let reply = self.bare.exchange(&self.take.bytes)?;
        match fence_in(reply, self.fence_length) {
            Some(fence) => Template::put(&mut self.give.bytes, &self.give.fences, fence),
            None => return Err(unexpected("take", reply)),
        }
        let reply = self.bare.exchange(&self.give.bytes)?;
        // A give with the wrong fence is answered as if nothing had been there to give.
        if reply == self.nothing || reply.starts_with(b"-") {
            return Err(unexpected("give", reply));
        }
        Ok(())
    }

    /// The connection, for what else is measured or asked on it.
    pub(super) fn bare(&mut self) -> &mut Bare {
        &mut self.bare
    }

    fn new_token(&mut self) {
        self.turn += 1;
        count_in(&mut self.token, self.turn);
        for command in [&mut self.take, &mut self.give] {
            Template::put(&mut command.bytes, &command.tokens, &self.token);
        }
    }
}

/// Writes the turn into the last 16 digits of a token.
pub(super) fn count_in(token: &mut [u8], turn: u64) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (place, digit) in token.iter_mut().rev().take(16).enumerate() {
        *digit = DIGITS[(turn >> (4 * place)) as usize & 15];
    }
}

impl Template {
    pub(super) fn new(command: &[Vec<u8>], recorded: &Recorded) -> Template {
        let bytes = pack(command);
        let places = |needle: &[u8]| {
            let windows = bytes.windows(needle.len()).enumerate();
            windows.filter(|(_, window)| *window == needle).map(|(at, _)| at).collect()
        };
        Template { tokens: places(&recorded.token), fences: places(&recorded.fence), bytes }
    }

    pub(super) fn put(bytes: &mut [u8], places: &[usize], value: &[u8]) {
        for place in places {
            bytes[*place..*place + value.len()].copy_from_slice(value);
        }
    }
}

/// The fence in a take's reply: its first number that is as long as a fence.
pub(super) fn fence_in(reply: &[u8], length: usize) -> Option<&[u8]> {
    reply.split(|byte| !byte.is_ascii_digit()).find(|digits| digits.len() == length)
}

pub(super) fn unexpected(script: &str, reply: &[u8]) -> Failure {
    Failure::unavailable(format!(
        "the bare {script} was answered {}",
        reply.trim_ascii().escape_ascii()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_takes_tokens_and_fences_where_they_stood() {
        let words = |text: &str| text.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        let recorded = Recorded {
            take: words("EVALSHA d 1 n aaaa 30"),
            give: words("EVALSHA e 1 n aaaa 1234"),
            token: b"aaaa".to_vec(),
            fence: b"1234".to_vec(),
        };
        let mut give = Template::new(&recorded.give, &recorded);
        Template::put(&mut give.bytes, &give.tokens, b"bbbb");
        Template::put(&mut give.bytes, &give.fences, b"5678");
        assert_eq!(give.bytes, pack(&["EVALSHA", "e", "1", "n", "bbbb", "5678"]));
        assert!(Template::new(&recorded.take, &recorded).fences.is_empty());
    }

    #[test]
    fn the_fence_is_the_first_number_of_its_length() {
        let reply = b"$14\r\nG 1234 5678 30\r\n";
        assert_eq!(fence_in(reply, 4), Some(&b"1234"[..]));
        assert_eq!(fence_in(b"$6\r\nB 30 1\r\n", 4), None);
    }
}
