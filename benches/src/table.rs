//! What was measured, for people and for programs.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

/// Figures in rows and columns; what nothing tells is `None`.
pub(crate) struct Table {
    title: String,
    columns: Vec<String>,
    rows: Vec<(String, Vec<Option<f64>>)>,
}

impl Table {
    pub(crate) fn new<C: Into<String>>(title: &str, columns: impl IntoIterator<Item = C>) -> Table {
        let columns = columns.into_iter().map(Into::into).collect();
        Table { title: title.to_owned(), columns, rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, name: &str, figures: impl IntoIterator<Item = Option<f64>>) {
        self.rows.push((name.to_owned(), figures.into_iter().collect()));
    }

    pub(crate) fn title(&self) -> &str {
        &self.title
    }

    pub(crate) fn columns(&self) -> &[String] {
        &self.columns
    }

    pub(crate) fn rows(&self) -> &[(String, Vec<Option<f64>>)] {
        &self.rows
    }

    /// One figure, for the tests.
    #[cfg(test)]
    pub(crate) fn figure(&self, row: &str, column: usize) -> Option<f64> {
        let found = self.rows.iter().find(|(name, _)| name == row);
        found.unwrap_or_else(|| panic!("no row {row}:\n{}", self.text())).1[column]
    }

    pub(crate) fn text(&self) -> String {
        let length = |(name, _): &(String, Vec<_>)| name.chars().count();
        let first = self.rows.iter().map(length).max().unwrap_or(0).max(self.title.chars().count());
        let mut text = format!("{:<first$}", self.title);
        for column in &self.columns {
            let _ = write!(text, "{column:>14}");
        }
        for (name, figures) in &self.rows {
            let _ = write!(text, "\n{name:<first$}");
            for figure in figures {
                let figure = figure.map_or_else(|| "-".to_owned(), shown);
                let _ = write!(text, "{figure:>14}");
            }
        }
        text + "\n"
    }
}

/// Three digits that mean something.
pub(crate) fn shown(figure: f64) -> String {
    match figure.abs() {
        size if size >= 100.0 || size == 0.0 => format!("{figure:.0}"),
        size if size >= 10.0 => format!("{figure:.1}"),
        _ => format!("{figure:.2}"),
    }
}

/// `{title: {row: {column: figure}}}`. A row that is set in has the name of the one above it before its own,
/// since several tables have it more than once.
pub(crate) fn json(tables: &[Table]) -> Value {
    let row = |table: &Table, figures: &[Option<f64>]| -> Value {
        table.columns.iter().cloned().zip(figures.iter().map(|figure| json!(figure))).collect()
    };
    let rows = |table: &Table| -> Value {
        let (mut rows, mut whole) = (Map::new(), "");
        for (name, figures) in &table.rows {
            let name = match name.strip_prefix("  ") {
                Some(part) => format!("{whole}: {part}"),
                None => {
                    whole = name;
                    name.clone()
                }
            };
            rows.insert(name, row(table, figures));
        }
        Value::Object(rows)
    };
    Value::Object(
        tables.iter().map(|table| (table.title.clone(), rows(table))).collect::<Map<_, _>>(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_by_people_and_by_programs() {
        let mut table = Table::new("redis", ["one core", "a core each"]);
        table.row("our cycle, µs", [Some(31.97), None]);
        table.row("ratio", [Some(1.114), Some(0.0)]);
        table.row("  of it", [Some(2.5), None]);
        let lines = [
            "redis              one core   a core each",
            "our cycle, µs          32.0             -",
            "ratio                  1.11             0",
            "  of it                2.50             -",
        ];
        assert_eq!(table.text(), lines.join("\n") + "\n");
        let json = json(&[table]);
        assert_eq!(json["redis"]["ratio"]["one core"], 1.114);
        assert_eq!(json["redis"]["ratio: of it"]["one core"], 2.5);
        assert!(json["redis"]["our cycle, µs"]["a core each"].is_null());
    }
}
