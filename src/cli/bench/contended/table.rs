//! What was measured, for programs and for people.

use serde_json::{Map, Value, json};

use super::super::report::rounded;
use super::figures::Figures;
use super::plan::Row;
use super::worker::Way;

/// The figures of all rows.
pub(in super::super) struct Report {
    pub(super) store: String,
    pub(super) server: Option<String>,
    /// The idle round trip.
    pub(super) rtt_us: Option<f64>,
    pub(super) rows: Vec<(Row, Figures)>,
}

/// What a queue should reach; a figure at most as large is good.
const WAIT: f64 = 1.1;
const OVERTAKEN: f64 = 1.0;
const INSIDE_US: f64 = 6.0;
const COMMANDS: f64 = 3.0;
const IDLE_SHARE: f64 = 0.01;
const IDLE_COMMANDS: f64 = 20.0;

/// One waiter a process, or several.
fn p50_bar(row: &Row) -> f64 {
    if row.waiters > 100 { 1.3 } else { 1.1 }
}

fn p99_bar(row: &Row) -> Option<f64> {
    (row.waiters <= 100).then_some(2.5)
}

fn fairness_bar(row: &Row) -> f64 {
    if row.sizes.iter().all(|size| *size == 1) { 1.1 } else { 1.25 }
}

impl Report {
    pub(in super::super) fn json(&self) -> Value {
        let mut json = self.keys(Way::Auto);
        json.insert("store".to_owned(), json!(self.store));
        json.insert("server_version".to_owned(), json!(self.server));
        json.insert("rtt_us".to_owned(), json!(rounded(self.rtt_us)));
        if self.rows.iter().any(|(row, _)| row.way == Way::Spin) {
            json.insert("spin".to_owned(), Value::Object(self.keys(Way::Spin)));
        }
        Value::Object(json)
    }

    /// Each figure by the number of waiters.
    fn keys(&self, way: Way) -> Map<String, Value> {
        let of_way = || self.rows.iter().filter(move |(row, _)| row.way == way);
        let by = |inside: bool, figure: &dyn Fn(&Row, &Figures) -> Value| {
            let rows = of_way().filter(|(row, _)| row.is_inside() == inside);
            let pairs = rows.map(|(row, figures)| (row.waiters.to_string(), figure(row, figures)));
            Value::Object(pairs.collect())
        };
        let number = |inside: bool, figure: fn(&Figures) -> Option<f64>| {
            by(inside, &|_, figures| json!(rounded(figure(figures))))
        };
        let mut keys = Map::new();
        let mut put = |key: &str, value: Value| keys.insert(key.to_owned(), value);
        if of_way().any(|(_, figures)| figures.idle_share.is_some()) {
            put("idle_core_share", by_all(of_way(), |figures| figures.idle_share));
            put("idle_commands_per_second", by_all(of_way(), |figures| figures.idle_commands));
            return keys;
        }
        put("handover_p50_rtt", number(false, |figures| figures.p50_rtt));
        put("handover_p99_rtt", number(false, |figures| figures.p99_rtt));
        put("commands_per_acquisition", number(false, |figures| figures.commands));
        put("fairness_max_over_min", number(false, |figures| figures.fairness));
        put("max_wait_ratio", number(false, |figures| figures.wait_ratio));
        put("most_overtaken_by_one", by(false, &|_, figures| json!(figures.overtaking.turns)));
        put("most_overtaken_by_later", by(false, &|_, figures| json!(figures.overtaking.later)));
        put("local_handover_us", number(true, |figures| figures.passed_us.or(figures.inside_us)));
        put("local_any_handover_us", number(true, |figures| figures.inside_us));
        put("local_passed_share", number(true, |figures| figures.passed_share));
        put("local_commands_per_grant", number(true, |figures| figures.commands_per_grant));
        put("local_commands_per_turn", number(true, |figures| figures.commands_per_turn));
        let about = |row: &Row, figures: &Figures| {
            json!({
                "processes": row.sizes,
                "hold_us": rounded(figures.hold_us),
                "think_us": row.think.as_micros() as u64,
                "turns": figures.turns,
                "handovers": figures.handovers,
                "fewest_turns": figures.fewest,
                "inside_handover_us": rounded(figures.inside_us),
                "commands_per_grant": rounded(figures.commands_per_grant),
                "errors": figures.errors,
            })
        };
        put("waiters", by(false, &about));
        put("local_waiters", by(true, &about));
        keys
    }

    pub(in super::super) fn text(&self) -> String {
        let version = self.server.as_ref().map(|version| format!(", version {version}"));
        let mut text = format!("{}{}\n", self.store, version.unwrap_or_default());
        if let Some(rtt) = self.rtt_us {
            text += &format!("an idle round trip (PING) takes {rtt:.1} µs\n");
        }
        if self.rows.iter().any(|(_, figures)| figures.idle_share.is_some()) {
            return text + &self.idle();
        }
        text += "behind each figure is what it should be: ≤ it is, > it is not\n";
        text + &self.across() + &self.inside()
    }

    fn across(&self) -> String {
        let mut text = format!(
            "\nhanding over to another process\n\
             {:>8} {:<12}{:<6}{:<15}{:<15}{:<15}{:<15}{:<15}{:<12}{:<10}{}\n",
            "waiters",
            "in",
            "turn",
            "p50, rtt",
            "p99, rtt",
            "commands",
            "most/fewest",
            "p99 wait",
            "overtaken",
            "by later",
            "errors",
        );
        for (row, figures) in self.rows.iter().filter(|(row, _)| !row.is_inside()) {
            text += &format!(
                "{:>8} {:<12}{:<6}{:<15}{:<15}{:<15}{:<15}{:<15}{:<12}{:<10}{}\n",
                row.waiters,
                row.spread(),
                row.way.name(),
                judged(figures.p50_rtt, Some(p50_bar(row)), 2),
                judged(figures.p99_rtt, p99_bar(row), 2),
                judged(figures.commands, Some(COMMANDS), 2),
                judged(figures.fairness, Some(fairness_bar(row)), 2),
                judged(figures.wait_ratio, Some(WAIT), 2),
                judged(Some(f64::from(figures.overtaking.turns)), Some(OVERTAKEN), 0),
                figures.overtaking.later,
                figures.errors,
            );
        }
        text
    }

    fn inside(&self) -> String {
        let mut text = format!(
            "\nhanding over inside one process, held for no time\n\
             {:>8} {:<6}{:<15}{:<15}{:<14}{:<18}{:<18}{}\n",
            "threads",
            "turn",
            "passed on, µs",
            "any way, µs",
            "passed on",
            "commands a grant",
            "commands a turn",
            "errors",
        );
        for (row, figures) in self.rows.iter().filter(|(row, _)| row.is_inside()) {
            let percent = figures.passed_share.map(|share| share * 100.0);
            text += &format!(
                "{:>8} {:<6}{:<15}{:<15}{:<14}{:<18}{:<18}{}\n",
                row.waiters,
                row.way.name(),
                judged(figures.passed_us.or(figures.inside_us), Some(INSIDE_US), 1),
                judged(figures.inside_us, None, 1),
                percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent:.1} %")),
                judged(figures.commands_per_grant, Some(COMMANDS), 2),
                judged(figures.commands_per_turn, None, 3),
                figures.errors,
            );
        }
        text
    }

    fn idle(&self) -> String {
        let mut text = format!(
            "\nwaiting for a lock that stays taken\n{:>8} {:<12}{:<6}{:<20}{}\n",
            "waiters", "in", "turn", "share of a core", "commands a second",
        );
        for (row, figures) in &self.rows {
            text += &format!(
                "{:>8} {:<12}{:<6}{:<20}{}\n",
                row.waiters,
                row.spread(),
                row.way.name(),
                judged(figures.idle_share, Some(IDLE_SHARE), 4),
                judged(figures.idle_commands, Some(IDLE_COMMANDS), 1),
            );
        }
        text
    }
}

fn by_all<'a>(
    rows: impl Iterator<Item = &'a (Row, Figures)>,
    figure: fn(&Figures) -> Option<f64>,
) -> Value {
    let pair = |(row, figures): &(Row, Figures)| {
        (row.waiters.to_string(), json!(rounded(figure(figures))))
    };
    Value::Object(rows.map(pair).collect())
}

/// A figure, and beside it what it should be.
fn judged(figure: Option<f64>, bar: Option<f64>, decimals: usize) -> String {
    match (figure, bar) {
        (None, _) => "-".to_owned(),
        (Some(figure), None) => format!("{figure:.decimals$}"),
        (Some(figure), Some(bar)) => {
            format!("{figure:.decimals$} {} {bar}", if figure <= bar { '≤' } else { '>' })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let good = Figures { p50_rtt: Some(0.95), inside_us: Some(4.2), ..Figures::default() };
        let bad = Figures { p50_rtt: Some(2.44), ..Figures::default() };
        let spin = Row { way: Way::Spin, ..Row::of(8, vec![1; 8]) };
        Report {
            store: "redis://h:1/0".to_owned(),
            server: Some("7.0.15".to_owned()),
            rtt_us: Some(85.0),
            rows: vec![
                (Row::of(8, vec![1; 8]), good.clone()),
                (Row::of(2, vec![2]), good),
                (spin, bad),
            ],
        }
    }

    #[test]
    fn json_has_each_figure_by_the_number_of_waiters() {
        let json = report().json();
        assert_eq!(json["handover_p50_rtt"], json!({ "8": 0.95 }));
        assert_eq!(json["local_handover_us"], json!({ "2": 4.2 }));
        assert_eq!(json["spin"]["handover_p50_rtt"]["8"], 2.44);
        assert_eq!(json["rtt_us"], 85.0);
        assert!(json["max_wait_ratio"]["8"].is_null());
    }

    #[test]
    fn a_table_shows_what_a_figure_should_be() {
        let text = report().text();
        assert!(text.contains("0.95 ≤ 1.1") && text.contains("2.44 > 1.1"), "{text}");
        assert!(text.contains("4.2 ≤ 6"), "{text}");
    }

    #[test]
    fn a_report_of_idle_waiters_has_nothing_else() {
        let figures =
            Figures { idle_share: Some(0.002), idle_commands: Some(31.0), ..Figures::default() };
        let mut report = report();
        report.rows = vec![(Row::of(8, vec![1; 8]), figures)];
        let json = report.json();
        assert_eq!(json["idle_core_share"]["8"], 0.002);
        assert!(json.get("handover_p50_rtt").is_none());
        assert!(report.text().contains("31.0 > 20"), "{}", report.text());
    }
}
