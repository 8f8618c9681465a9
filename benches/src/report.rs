//! One page with what was measured, drawn: it needs no other file and no network.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::measure::Outcome;
use crate::table::{Table, shown};

const STYLE: &str = include_str!("report.css");
/// How many columns of a table report.css can tell apart.
const COLOURS: usize = 6;

pub(crate) fn write(path: &Path, tables: &[Table]) -> Outcome<()> {
    let page = page(tables, &machine());
    fs::write(path, page).map_err(|error| format!("{}: {error}", path.display()).into())
}

/// The processors on which the figures were taken, as Linux names them.
fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let models = info.lines().filter(|line| line.starts_with("model name"));
    let names: Vec<&str> = models.filter_map(|line| line.split(": ").nth(1)).collect();
    match names.first() {
        Some(name) => format!("{} cores of {name}", names.len()),
        None => format!("a machine of {}", std::env::consts::ARCH),
    }
}

fn page(tables: &[Table], machine: &str) -> String {
    let sections: String = tables.iter().map(section).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>What a lock of Leasehold costs</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <h1>What a lock of Leasehold costs</h1>\n\
         <p>Measured on {}; medians of loops that took turns in one run. Compare ratios with those of \
         other machines, never times. The line among ratios is 1: as much as what stands behind \
         “over”.</p>\n{sections}</body>\n</html>\n",
        escaped(machine)
    )
}

/// The bars of a plot have one scale, so there is a plot for each unit.
fn section(table: &Table) -> String {
    let mut text = format!("<section>\n<h2>{}</h2>\n<p class=\"key\">", escaped(table.title()));
    for (at, column) in table.columns().iter().enumerate() {
        let _ = write!(text, "<span><i class=\"c{}\"></i>{}</span>", at % COLOURS, escaped(column));
    }
    text += "</p>\n";
    let groups = groups(table);
    for unit in [Unit::Micros, Unit::Ratio, Unit::Trips, Unit::Count] {
        let of_unit: Vec<&Group<'_>> = groups.iter().filter(|group| group.unit == unit).collect();
        text += &plot(unit, &of_unit);
    }
    text + "</section>\n"
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Micros,
    Ratio,
    Trips,
    Count,
}

impl Unit {
    const fn title(self) -> &'static str {
        match self {
            Unit::Micros => "µs",
            Unit::Ratio => "ratios",
            Unit::Trips => "idle round trips",
            Unit::Count => "counted",
        }
    }
}

/// A row of a table: a bar for each column.
struct Group<'a> {
    name: String,
    unit: Unit,
    figures: &'a [Option<f64>],
}

fn groups(table: &Table) -> Vec<Group<'_>> {
    let (mut whole, mut of_whole) = ("", Unit::Count);
    let mut groups = Vec::new();
    for (row, figures) in table.rows() {
        // A row that is set in says something of the last one that is not, in its unit if it names none.
        let group = match row.strip_prefix("  ") {
            Some(part) => {
                let (part, unit) = unit(part, of_whole);
                Group { name: format!("{whole}, {part}"), unit, figures }
            }
            None => {
                (whole, of_whole) = unit(row, Unit::Count);
                Group { name: whole.to_owned(), unit: of_whole, figures }
            }
        };
        groups.push(group);
    }
    groups
}

/// As the name of a row says, and the name without it.
fn unit(row: &str, otherwise: Unit) -> (&str, Unit) {
    if let Some(name) = row.strip_suffix(", µs") {
        (name, Unit::Micros)
    } else if let Some(name) = row.strip_suffix(", round trips") {
        (name, Unit::Trips)
    } else if row.starts_with("over ") || row.contains(" over ") {
        (row, Unit::Ratio)
    } else {
        (row, otherwise)
    }
}

fn plot(unit: Unit, groups: &[&Group<'_>]) -> String {
    let figures = groups.iter().flat_map(|group| group.figures).flatten();
    let least = if unit == Unit::Ratio { 1.0 } else { 0.0 };
    let largest = figures.copied().fold(least, f64::max);
    if groups.is_empty() || largest == 0.0 {
        return String::new();
    }
    let part = |figure: f64| format!("{:.2}", figure.max(0.0) / largest);
    let mut text = format!("<h3>{}</h3>\n<div class=\"plot\">\n", unit.title());
    for group in groups {
        let _ =
            write!(text, "<div class=\"name\">{}</div><div class=\"bars\"", escaped(&group.name));
        if unit == Unit::Ratio {
            let _ = write!(text, " style=\"--one:{}\"", part(1.0));
        }
        text += ">";
        for (at, figure) in group.figures.iter().enumerate() {
            let Some(figure) = figure else { continue };
            let _ = write!(
                text,
                "<div class=\"bar c{}\" style=\"--part:{}\"><b></b>{}</div>",
                at % COLOURS,
                part(*figure),
                shown(*figure)
            );
        }
        text += "</div>\n";
    }
    text + "</div>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_shows_each_figure_in_a_plot_of_its_unit_and_needs_nothing_else() {
        let mut table = Table::new("a <server>", ["one core", "a core each"]);
        table.row("our cycle, µs", [Some(32.0), Some(64.0)]);
        table.row("  over raw2f", [Some(1.25), None]);
        table.row("commands & more", [Some(2.0), Some(0.0)]);
        let page = page(&[table], "2 cores of \"x\"");
        assert!(
            page.contains("<h2>a &lt;server&gt;</h2>") && page.contains("2 cores of &quot;x&quot;")
        );
        assert!(
            page.contains(r#"<div class="bar c0" style="--part:0.50"><b></b>32.0</div>"#),
            "{page}"
        );
        assert!(
            page.contains(r#"<div class="bar c1" style="--part:1.00"><b></b>64.0</div>"#),
            "{page}"
        );
        assert!(
            page.contains(r#"our cycle, over raw2f</div><div class="bars" style="--one:0.80">"#)
        );
        assert!(page.contains("commands &amp; more"));
        for (open, close) in [("<div", "</div>"), ("<section", "</section>"), ("<p", "</p>")] {
            assert_eq!(page.matches(open).count(), page.matches(close).count(), "{open}");
        }
        for foreign in ["http", "src=", "href=", "@import", "url("] {
            assert!(!page.contains(foreign), "{foreign}");
        }
    }
}
