//! Durations as people write them.

use std::time::Duration;

use super::bad;
use crate::error::Error;

const UNITS: [(&str, f64); 6] =
    [("d", 86400.0), ("h", 3600.0), ("m", 60.0), ("s", 1.0), ("ms", 1e-3), ("us", 1e-6)];

/// Reads `250ms`, `10s`, `1.5s`, `5m`, `1h`, `1d`, and several of them, the largest first: `1h30m`,
/// or `1 h 30 m`. A bare `0` is a duration too; any other number needs its unit, so that nobody
/// takes seconds for milliseconds.
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(leasehold::command::parse_duration("1.5s")?, Duration::from_millis(1500));
/// assert_eq!(leasehold::command::parse_duration("1h30m")?, Duration::from_secs(5400));
/// assert!(leasehold::command::parse_duration("10").is_err());
/// # Ok::<(), leasehold::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::BadArgument`](crate::ErrorKind::BadArgument) for anything else, a negative one
/// included.
pub fn parse_duration(text: &str) -> Result<Duration, Error> {
    let refuse = |why: &str| bad(format!("'{}' is no duration: {why}", text.escape_debug()));
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.starts_with('-') {
        return Err(refuse("it is negative; 0 is the least"));
    }
    let (mut rest, mut smaller, mut total) = (text, &UNITS[..], Duration::ZERO);
    while !rest.is_empty() || total.is_zero() && smaller.len() == UNITS.len() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let after = after.trim_start_matches(' ');
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let Some(index) = smaller.iter().position(|(name, _)| *name == unit) else {
            return Err(refuse(
                "write numbers with a unit of d, h, m, s, ms or us, the largest first, as in 10s \
                 or 1h30m",
            ));
        };
        let number: f64 = number.parse().map_err(|_| refuse("a number cannot be read"))?;
        total = Duration::try_from_secs_f64(number * smaller[index].1)
            .ok()
            .and_then(|span| total.checked_add(span))
            .ok_or_else(|| refuse("it is too long"))?;
        (rest, smaller) = (after.trim_start_matches(' '), &smaller[index + 1..]);
    }
    Ok(total)
}

/// A duration for a sentence, as it can be typed too. A day or so is said in hours.
pub(crate) fn spoken(span: Duration) -> String {
    let (seconds, nanos) = (span.as_secs(), span.subsec_nanos());
    let days = if seconds < 2 * 86400 { 0 } else { seconds / 86400 };
    let hours = (seconds - days * 86400) / 3600;
    let mut parts = vec![(days, "d"), (hours, "h"), (seconds % 3600 / 60, "m")];
    parts.retain(|(count, _)| *count > 0);
    let mut said: Vec<_> = parts.iter().map(|(count, unit)| format!("{count} {unit}")).collect();
    let (least, unit) = match nanos {
        _ if seconds > 0 => (Duration::new(seconds % 60, nanos), "s"),
        0 => (Duration::ZERO, "s"),
        1_000_000.. => (span * 1000, "ms"),
        _ => (span * 1_000_000, "us"),
    };
    if said.is_empty() || !least.is_zero() {
        said.push(format!("{} {unit}", least.as_secs_f64()));
    }
    said.join(" ")
}

/// What is left of a time that others measure, in whole seconds.
pub(crate) fn spoken_left(span: Duration) -> String {
    spoken(Duration::from_secs(span.as_secs() + u64::from(span.subsec_nanos() > 0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_read_as_people_write_them() {
        for (text, millis) in [
            ("0", 0),
            ("0s", 0),
            ("250ms", 250),
            ("1.5s", 1500),
            ("5m", 300_000),
            ("1h", 3_600_000),
            ("2d", 172_800_000),
            ("1h30m", 5_400_000),
            ("1m30s", 90_000),
            ("1d1h1m1s1ms", 90_061_001),
            ("1 h 30 m", 5_400_000),
        ] {
            assert_eq!(parse_duration(text).unwrap(), Duration::from_millis(millis), "{text}");
        }
        for text in [
            "",
            " ",
            "s",
            "10",
            "-1s",
            "1w",
            "1..5s",
            "1e3s",
            "nan",
            "inf",
            "1h30",
            "30m1h",
            "1s1s",
            "1m-30s",
            "9999999999999999999999d",
        ] {
            let error = parse_duration(text).unwrap_err();
            assert!(error.detail().starts_with(&format!("'{text}' is no duration: ")), "{error}");
        }
        assert!(
            parse_duration("-1s").unwrap_err().detail().ends_with("it is negative; 0 is the least")
        );
    }

    #[test]
    fn durations_are_said_as_people_say_them() {
        for (text, said) in [
            ("0", "0 s"),
            ("1us", "1 us"),
            ("2999us", "2.999 ms"),
            ("999ms", "999 ms"),
            ("10.003s", "10.003 s"),
            ("60s", "1 m"),
            ("90s", "1 m 30 s"),
            ("3600s", "1 h"),
            ("86400s", "24 h"),
            ("172800s", "2 d"),
            ("266461s", "3 d 2 h 1 m 1 s"),
        ] {
            assert_eq!(spoken(parse_duration(text).unwrap()), said);
        }
    }

    proptest! {
        #[test]
        fn what_is_said_can_be_typed(micros in prop_oneof![0..10_000_000_u64, 0..1_u64 << 50]) {
            let span = Duration::from_micros(micros);
            let read = parse_duration(&spoken(span)).unwrap();
            prop_assert!(span.abs_diff(read) < Duration::from_nanos(500), "{}", spoken(span));
        }
    }
}
