//! URLs of stores in memory.

use super::refused;
use crate::config::Config;

#[test]
fn a_store_in_memory_has_a_name_or_none() {
    let shown = |url| Config::from_url(url).unwrap().display_store();
    assert_eq!(shown("memory:"), "memory:");
    assert_eq!(shown("memory://"), shown("memory:"));
    assert_eq!(shown("memory:orders"), "memory:orders");
    assert_eq!(shown("MEMORY://orders?prefix=x"), "memory:orders");
    assert_eq!(shown("memory:a%20b"), "memory:a b");
}

#[test]
fn a_store_in_memory_has_nothing_of_a_servers() {
    refused("memory:?guard_data_loss=yes", "guard_data_loss is for Redis");
    refused("memory:?fence_life=4h", "fence_life is for one Redis");
    refused("memory:?replicas=1", "'replicas' is not known for memory");
    refused("memory:?user=x", "'user' is not known for memory");
    refused("memory:?tls=yes", "'tls' is not known for memory");
    refused("memory:?database=x", "'database' is not known for memory");
    refused("memory:a,redis://b,redis://c", "the members of a quorum are Redis servers");
    refused("redis://a,memory:,redis://c", "the members of a quorum are Redis servers");
    refused("memory:%ff", "not UTF-8");
}
