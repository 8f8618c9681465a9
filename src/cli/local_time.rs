//! The time of day where the user is.

use std::time::{SystemTime, UNIX_EPOCH};

use rusqlite::Connection;

/// SQLite knows the zone, by the C library and without `unsafe` here; nothing is written anywhere.
pub(crate) struct LocalTime(Option<Connection>);

impl LocalTime {
    pub(crate) fn new() -> LocalTime {
        LocalTime(Connection::open_in_memory().ok())
    }

    /// Date, hours, minutes and seconds of a moment.
    pub(crate) fn at(&self, moment: SystemTime) -> String {
        let seconds = moment.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        let ask = |connection: &Connection| {
            let say = "SELECT strftime('%Y-%m-%d %H:%M:%S', ?1, 'unixepoch', 'localtime')";
            connection.query_one(say, [seconds], |row| row.get(0)).ok()
        };
        self.0.as_ref().and_then(ask).unwrap_or_else(|| "----------".to_owned())
    }

    /// Hours, minutes, seconds and their thousandths; dashes where it cannot be had.
    pub(crate) fn now(&self) -> String {
        let ask = |connection: &Connection| {
            let say = "SELECT strftime('%H:%M:%f', 'now', 'localtime')";
            connection.query_one(say, [], |row| row.get(0)).ok()
        };
        self.0.as_ref().and_then(ask).unwrap_or_else(|| "--:--:--.---".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_time_of_day() {
        let said = LocalTime::new().now();
        let shape: String =
            said.chars().map(|it| if it.is_ascii_digit() { '0' } else { it }).collect();
        assert_eq!(shape, "00:00:00.000");
        let said = LocalTime::new().at(SystemTime::now());
        let shape: String =
            said.chars().map(|it| if it.is_ascii_digit() { '0' } else { it }).collect();
        assert_eq!(shape, "0000-00-00 00:00:00");
    }
}
