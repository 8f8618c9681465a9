//! What was measured, for programs and for people.

use serde_json::{Value, json};

use super::also::Named;

/// Medians in microseconds, at one placement of client and server.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    pub(super) rtt: Option<f64>,
    pub(super) limit: Option<f64>,
    pub(super) cycle: f64,
    /// With a release that is not waited for.
    pub(super) deferred: Option<f64>,
    pub(super) commands: Option<f64>,
    /// The cycles of other programs, by name.
    pub(super) also: Named,
}

impl Figures {
    fn ratio(&self) -> Option<f64> {
        over(self.cycle, self.limit)
    }

    fn deferred_ratio(&self) -> Option<f64> {
        over(self.deferred?, self.limit)
    }

    fn also(&self, name: &str) -> Option<f64> {
        self.also.iter().find(|(other, _)| other == name).map(|(_, cycle)| *cycle)
    }

    fn json(&self) -> Value {
        json!({
            "rtt_us": rounded(self.rtt),
            "limit_cycle_us": rounded(self.limit),
            "cycle_us": rounded(Some(self.cycle)),
            "cycle_ratio": rounded(self.ratio()),
            "deferred_cycle_us": rounded(self.deferred),
            "deferred_cycle_ratio": rounded(self.deferred_ratio()),
            "commands_per_cycle": rounded(self.commands),
            "also": Value::Object(self.also.iter().map(|(name, cycle)| (name.clone(), json!({
                "cycle_us": rounded(Some(*cycle)),
                "cycle_ratio": rounded(over(*cycle, self.limit)),
                "over_ours": rounded(over(*cycle, Some(self.cycle))),
            }))).collect()),
        })
    }
}

fn over(cycle: f64, base: Option<f64>) -> Option<f64> {
    base.filter(|base| *base > 0.0).map(|base| cycle / base)
}

/// Three decimals: more would be noise.
pub(super) fn rounded(figure: Option<f64>) -> Option<f64> {
    figure.map(|figure| (figure * 1000.0).round() / 1000.0)
}

/// A store's figures.
#[derive(Clone, Debug)]
pub(super) struct Report {
    store: String,
    server: Option<String>,
    same: Option<Figures>,
    cross: Option<Figures>,
}

impl Report {
    pub(super) fn new(
        store: &str,
        server: Option<&str>,
        same: Option<Figures>,
        cross: Option<Figures>,
    ) -> Report {
        Report { store: store.to_owned(), server: server.map(str::to_owned), same, cross }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "store": self.store,
            "server_version": self.server,
            "same": self.same.as_ref().map(Figures::json),
            "cross": self.cross.as_ref().map(Figures::json),
        })
    }

    pub(super) fn text(&self) -> String {
        let version = self.server.as_ref().map(|version| format!(", version {version}"));
        let mut text = format!("{}{}\n\n", self.store, version.unwrap_or_default());
        text += &format!("{:<34}{:>10}{:>10}\n", "", "same core", "cross");
        let mut row = |title: &str, column: &dyn Fn(&Figures) -> Option<f64>, decimals: usize| {
            let cell = |figures: &Option<Figures>| {
                let figure = figures.as_ref().and_then(column);
                figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.decimals$}"))
            };
            text += &format!("{title:<34}{:>10}{:>10}\n", cell(&self.same), cell(&self.cross));
        };
        row("one round trip (PING), µs", &|figures| figures.rtt, 1);
        row("the bare limit of a cycle, µs", &|figures| figures.limit, 1);
        row("our cycle, µs", &|figures| Some(figures.cycle), 1);
        row("our cycle over the limit", &Figures::ratio, 2);
        row("release not waited for, µs", &|figures| figures.deferred, 1);
        row("  over the limit", &Figures::deferred_ratio, 2);
        for (name, _) in self.same.iter().chain(&self.cross).take(1).flat_map(|first| &first.also) {
            row(&format!("the cycle of {name}, µs"), &|figures| figures.also(name), 1);
            row("  over the limit", &|figures| over(figures.also(name)?, figures.limit), 2);
            row("  over our cycle", &|figures| over(figures.also(name)?, Some(figures.cycle)), 2);
        }
        row("commands per cycle", &|figures| figures.commands, 2);
        text
    }
}

/// What holding many leases cost.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) store: String,
    pub(super) leases: usize,
    pub(super) seconds: f64,
    pub(super) ttl_ms: u128,
    pub(super) lost: u64,
    pub(super) renewed: u64,
    pub(super) bytes_per_lease: Option<f64>,
    pub(super) keeper_share: Option<f64>,
}

impl Held {
    pub(super) fn json(&self) -> Value {
        json!({
            "store": self.store,
            "leases": self.leases,
            "seconds": rounded(Some(self.seconds)),
            "ttl_ms": self.ttl_ms as u64,
            "lost": self.lost,
            "renewed": self.renewed,
            "bytes_per_lease": self.bytes_per_lease.map(f64::round),
            "keeper_core_share": rounded(self.keeper_share),
        })
    }

    pub(super) fn text(&self) -> String {
        let known = |figure: Option<String>| figure.unwrap_or_else(|| "-".to_owned());
        let bytes = known(self.bytes_per_lease.map(|bytes| format!("{bytes:.0}")));
        let share = known(self.keeper_share.map(|share| format!("{:.1} %", share * 100.0)));
        format!(
            "{}\n\n{} leases of {} ms held for {:.0} s\n\
             lost                               {}\n\
             renewals                           {}\n\
             memory a lease beyond its name     {bytes} bytes\n\
             the keeper's share of a core       {share}\n",
            self.store, self.leases, self.ttl_ms, self.seconds, self.lost, self.renewed,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_every_key_at_both_placements() {
        let figures = Figures {
            rtt: Some(8.0),
            limit: Some(20.0),
            cycle: 22.0,
            deferred: Some(15.0),
            commands: Some(2.0),
            also: vec![("c".to_owned(), 23.1)],
        };
        let report =
            Report::new("redis://h:1/0", Some("7.0.15"), Some(figures), Some(Figures::default()));
        let json = report.json();
        assert_eq!(json["same"]["cycle_ratio"], 1.1);
        assert_eq!(json["same"]["deferred_cycle_ratio"], 0.75);
        assert_eq!(json["same"]["commands_per_cycle"], 2.0);
        assert_eq!(json["same"]["also"]["c"]["cycle_us"], 23.1);
        assert_eq!(json["same"]["also"]["c"]["cycle_ratio"], 1.155);
        assert_eq!(json["same"]["also"]["c"]["over_ours"], 1.05);
        for key in [
            "rtt_us",
            "limit_cycle_us",
            "cycle_us",
            "cycle_ratio",
            "deferred_cycle_us",
            "deferred_cycle_ratio",
            "commands_per_cycle",
        ] {
            assert!(json["same"][key].is_f64() && json["cross"].get(key).is_some(), "{key}");
        }
        assert!(json["cross"]["cycle_ratio"].is_null());
        let text = report.text();
        assert!(text.contains("1.10") && text.contains("the cycle of c"), "{text}");
    }
}
