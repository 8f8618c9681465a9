//! How locks are written in a server: keys, scripts, and how their replies read. Knows no
//! topology.

pub(super) mod native;

use crate::fork::First;

/// A script in a file of its own, and the digest that it is called by.
pub(super) struct Script {
    pub(super) source: &'static str,
    hash: fn() -> String,
    digest: First<String>,
    /// Loaded along with it: needed later, when it may be too late to hear that it is missing.
    pub(super) follower: Option<&'static Script>,
}

impl Script {
    const fn new(source: &'static str, hash: fn() -> String) -> Script {
        Script { source, hash, digest: First::new(), follower: None }
    }

    const fn leading(
        source: &'static str,
        hash: fn() -> String,
        follower: &'static Script,
    ) -> Script {
        Script { source, hash, digest: First::new(), follower: Some(follower) }
    }

    pub(super) fn digest(&self) -> &str {
        self.digest.get(self.hash)
    }

    /// The command that an error of this script is about. Servers before 7.2 only tell the line
    /// (`@user_script:12`) of a command that they forbid.
    fn command_of(&self, error: &str) -> Option<&'static str> {
        let (_, place) = error.rsplit_once("user_script:")?;
        let digits = place.trim_start();
        let digits = &digits[..digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len())];
        let line = self.source.lines().nth(digits.parse::<usize>().ok()?.checked_sub(1)?)?;
        line.split_once("call('")?.1.split_once('\'').map(|(command, _)| command)
    }
}

/// A batch of calls, packed to be sent in one write.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) bytes: Vec<u8>,
    pub(super) calls: Vec<Call>,
}

/// One call of a script within a batch's bytes.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) script: &'static Script,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Batch {
    /// Room for so many calls with everyday names, so that packing them copies nothing twice.
    fn with_room_for(calls: usize) -> Batch {
        Batch { bytes: Vec::with_capacity(calls * 320), calls: Vec::with_capacity(calls) }
    }

    /// Packs a call straight into the bytes: a command of the `redis` crate would be put together
    /// elsewhere and copied, for every lock that is taken.
    fn push(&mut self, script: &'static Script, keys: &[&[u8]], args: &[&[u8]]) {
        let start = self.bytes.len();
        head(&mut self.bytes, b'*', 3 + keys.len() + args.len());
        bulk(&mut self.bytes, b"EVALSHA");
        bulk(&mut self.bytes, script.digest().as_bytes());
        bulk(&mut self.bytes, Decimal::of(keys.len() as u64).digits());
        keys.iter().chain(args).for_each(|text| bulk(&mut self.bytes, text));
        self.calls.push(Call { script, start, end: self.bytes.len() });
    }

    /// Some of the calls of this batch as a batch of their own.
    pub(super) fn only(&self, indices: &[usize]) -> Batch {
        let mut batch = Batch::default();
        for index in indices {
            let call = &self.calls[*index];
            let start = batch.bytes.len();
            batch.bytes.extend(&self.bytes[call.start..call.end]);
            batch.calls.push(Call { script: call.script, start, end: batch.bytes.len() });
        }
        batch
    }
}

fn head(bytes: &mut Vec<u8>, sign: u8, count: usize) {
    bytes.push(sign);
    bytes.extend_from_slice(Decimal::of(count as u64).digits());
    bytes.extend_from_slice(b"\r\n");
}

fn bulk(bytes: &mut Vec<u8>, text: &[u8]) {
    head(bytes, b'$', text.len());
    bytes.extend_from_slice(text);
    bytes.extend_from_slice(b"\r\n");
}

/// A number as text, without an allocation.
struct Decimal {
    digits: [u8; 20],
    start: usize,
}

impl Decimal {
    fn of(mut number: u64) -> Decimal {
        let mut decimal = Decimal { digits: [0; 20], start: 20 };
        loop {
            decimal.start -= 1;
            decimal.digits[decimal.start] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return decimal;
            }
        }
    }

    fn digits(&self) -> &[u8] {
        &self.digits[self.start..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_everybody_writes_them() {
        for number in [0, 7, 10, 86_400_000, u64::MAX] {
            assert_eq!(Decimal::of(number).digits(), number.to_string().as_bytes());
        }
    }

    #[test]
    fn a_forbidden_command_is_found_by_its_line() {
        static SCRIPT: Script =
            Script::new("-- why\nlocal t = redis.pcall('TIME')\nreturn 1", || "00ff".to_owned());
        let found = |error| SCRIPT.command_of(error);
        assert_eq!(found("can't run this command script: 00ff, on @user_script:2."), Some("TIME"));
        assert_eq!(found("f_00ff): @user_script:2: @user_script: 2: can't run"), Some("TIME"));
        for other in ["", "on @user_script:3.", "on @user_script:99.", "on @user_script:x"] {
            assert_eq!(found(other), None, "{other}");
        }
    }

    #[test]
    fn calls_are_packed_as_the_crate_packs_them() {
        static SCRIPT: Script = Script::new("return 1", || "00ff".to_owned());
        let mut batch = Batch::default();
        batch.push(&SCRIPT, &[b"key", b"\0{}"], &[b"", b"30000"]);
        batch.push(&SCRIPT, &[b"other"], &[]);
        let mut first = redis::cmd("EVALSHA");
        first.arg("00ff").arg(2).arg(&b"key"[..]).arg(&b"\0{}"[..]).arg("").arg(30000);
        let mut second = redis::cmd("EVALSHA");
        second.arg("00ff").arg(1).arg("other");
        let both = [first.get_packed_command(), second.get_packed_command()].concat();
        assert_eq!(batch.bytes, both);
        assert_eq!(batch.only(&[1]).bytes, second.get_packed_command());
    }
}
