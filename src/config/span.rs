//! Durations as people write them.

use std::time::Duration;

use super::bad;
use crate::error::Error;

/// Reads `250ms`, `10s`, `1.5s`, `5m`, `1h` or `1d`. A bare `0` is a duration too; any other
/// number needs its unit, so that nobody takes seconds for milliseconds.
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(leasehold::parse_duration("1.5s")?, Duration::from_millis(1500));
/// assert!(leasehold::parse_duration("10").is_err());
/// # Ok::<(), leasehold::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::BadArgument`](crate::ErrorKind::BadArgument) for anything else, a negative one
/// included.
pub fn parse_duration(text: &str) -> Result<Duration, Error> {
    const UNITS: [(&str, f64); 6] =
        [("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0)];
    let refuse = |why: &str| bad(format!("'{text}' is no duration: {why}"));
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.starts_with('-') {
        return Err(refuse("it is negative"));
    }
    let digits =
        text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
    let (number, unit) = text.split_at(digits);
    let Some((_, scale)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(refuse("write a number and one of us, ms, s, m, h, d, as in 10s"));
    };
    let number: f64 = number.parse().map_err(|_| refuse("the number cannot be read"))?;
    Duration::try_from_secs_f64(number * scale).map_err(|_| refuse("it is too long"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_people_write_them() {
        let read = |text| parse_duration(text).unwrap();
        assert_eq!(read("0"), Duration::ZERO);
        assert_eq!(read("250ms"), Duration::from_millis(250));
        assert_eq!(read("1.5s"), Duration::from_millis(1500));
        assert_eq!(read("5m"), Duration::from_secs(300));
        assert_eq!(read("1h"), Duration::from_secs(3600));
        for text in [
            "",
            "s",
            "10",
            "-1s",
            "1 s",
            "1w",
            "1..5s",
            "1e3s",
            "nan",
            "inf",
            "9999999999999999999999d",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
