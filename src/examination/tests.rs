//! The page has every finding, in the words of the code, and no other.

use super::*;

#[test]
fn the_page_lists_every_kind_of_finding() {
    let page = include_str!("../../docs/operating.md");
    let (_, page) = page.split_once("\n## Examination\n").unwrap();
    let tables = [
        KINDS,
        crate::client::examine::KINDS,
        crate::store::redis::examine::KINDS,
        crate::store::quorum::examine::KINDS,
        #[cfg(feature = "sqlite")]
        crate::store::sqlite::examine::KINDS,
        #[cfg(feature = "postgres")]
        crate::store::postgres::examine::KINDS,
        #[cfg(feature = "mysql")]
        crate::store::mysql::examine::KINDS,
        #[cfg(feature = "zookeeper")]
        crate::store::zookeeper::examine::KINDS,
        #[cfg(feature = "etcd")]
        crate::store::etcd::examine::KINDS,
    ];
    let mut ids = Vec::new();
    for table in tables {
        let mut rows = String::new();
        for Kind { id, severity, title, why, advice } in table {
            ids.push(*id);
            let advice = advice.replace('|', "\\|");
            rows += &format!("| `{id}` | {severity} | {title} | {why} | {advice} |\n");
        }
        assert!(page.contains(&rows), "in docs/operating.md, write:\n{rows}");
    }
    let said = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let said: Vec<_> = said.collect();
    if cfg!(all(
        feature = "sqlite",
        feature = "postgres",
        feature = "mysql",
        feature = "zookeeper",
        feature = "etcd"
    )) {
        assert_eq!(said, ids);
    }
    ids.sort_unstable();
    ids.dedup();
    assert!(ids.len() <= said.len(), "an id stands for one kind");
}
