//! How a server could lose locks that it has granted, by what it says of itself in INFO.

/// Of a server that nothing guards against lost data. `copies`: a grant waits for replicas.
pub(super) fn found(info: &[u8], copies: bool) -> Option<String> {
    let info = String::from_utf8_lossy(info);
    let value = |name: &str| {
        let mut values = info.lines().filter_map(|line| line.strip_prefix(name));
        values.find_map(|rest| rest.strip_prefix(':')).map(str::trim)
    };
    let replicas = value("connected_slaves").and_then(|count| count.parse().ok()).unwrap_or(0u32);
    let mut why = Vec::new();
    if value("aof_enabled") == Some("0") {
        why.push(
            "a restart may lose locks that are held (the server has no append-only file)"
                .to_owned(),
        );
    }
    if replicas > 0 && !copies {
        why.push(format!(
            "a failover may lose locks that are held (no grant waits for any of the {replicas} replicas; \
             replicas=1 has it wait for one)"
        ));
    }
    if why.is_empty() {
        return None;
    }
    let guard = "guard_data_loss=yes in the URL, and leasehold init once, guard against it; advise=no \
         leaves this line out";
    Some(format!("{}: {guard}", why.join(", and ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAVED: &str =
        "# Persistence\r\naof_enabled:1\r\n# Replication\r\nrole:master\r\nconnected_slaves:0\r\n";

    #[test]
    fn what_a_server_could_lose_is_said_and_of_what_it_does_not_say_nothing() {
        let found = |info: &str, copies| found(info.as_bytes(), copies).unwrap_or_default();
        assert_eq!(found(SAVED, false), "");
        assert_eq!(found("", false), "");
        assert_eq!(found("aof_enabled_too:0\r\nconnected_slaves:many\r\n", false), "");
        let bare = SAVED.replace("aof_enabled:1", "aof_enabled:0");
        for copies in [false, true] {
            let said = found(&bare, copies);
            assert!(said.starts_with("a restart may lose") && !said.contains("failover"), "{said}");
        }
        let copied = SAVED.replace("slaves:0", "slaves:2");
        assert!(found(&copied, false).contains("any of the 2 replicas"));
        assert_eq!(found(&copied, true), "");
        let both = found(&bare.replace("slaves:0", "slaves:1"), false);
        assert!(both.contains("restart") && both.contains("failover"), "{both}");
    }
}
