//! The time of day where the user is.

use rusqlite::Connection;

/// SQLite knows the zone, by the C library and without `unsafe` here; nothing is written anywhere.
pub(crate) struct LocalTime(Option<Connection>);

impl LocalTime {
    pub(crate) fn new() -> LocalTime {
        LocalTime(Connection::open_in_memory().ok())
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
    }
}
