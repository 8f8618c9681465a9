//! The rights that docs/operate/rights.md names, as the statements that stand there.

use std::path::Path;

/// The statements for a user, from the part that begins with this, as many as there have to be, with
/// the user's name here.
fn grants(part: &str, user: &str, name: &str, count: usize) -> Vec<String> {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operate/rights.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let ours = guide.split("\n## ").find(|found| found.starts_with(part)).unwrap();
    let end = format!(" TO {user};");
    let lines = ours.lines().filter(|line| line.starts_with("GRANT ") && line.ends_with(&end));
    let grants: Vec<_> = lines.map(|line| line.replace(&end, &format!(" TO {name};"))).collect();
    assert_eq!(grants.len(), count, "{grants:?}");
    grants
}

/// Whether an error says just this, and no other statement.
#[track_caller]
fn mended(error: &leasehold::Error, mend: &str) {
    let said = error.to_string();
    assert!(said.contains(&format!("a right is missing: {mend}")), "{mend} is not in: {said}");
    assert_eq!(said.matches("GRANT ").count(), 1, "{said}");
}

#[cfg(feature = "postgres")]
mod postgres {
    use std::thread;

    use kit::{Postgres, eventually};
    #[cfg(feature = "examine")]
    use leasehold::Checkup;
    use leasehold::{Break, Client, ErrorKind, EventKind, LossReason};

    use super::{grants, mended};
    use crate::postgres::made;
    use crate::sql::{client, refused};
    use crate::stores::{LIMIT, ms};

    #[test]
    fn the_rights_of_the_documentation_are_enough_and_none_is_too_many() {
        let server = Postgres::shared();
        let database = made(server);
        let role = format!("app_{database}");
        server.sql(&database, &format!("CREATE ROLE {role} LOGIN"));
        let url = server.url(&database).replace("postgres@", &format!("{role}@"));
        for grant in grants("PostgreSQL", "app", &role, 5) {
            server.sql(&database, &grant);
        }
        let (app, other) = (client(&url), client(&url));
        let lease = app.lock("n").acquire().unwrap();
        let waiting =
            thread::spawn(move || other.lock("n").acquire_within(LIMIT).unwrap().release());
        let queued = "SELECT count(*) FROM leasehold.lease WHERE waiters <> '{}'";
        eventually(LIMIT, || server.sql(&database, queued) == "1");
        lease.extend().unwrap();
        let known = || app.lock("n").inspect().unwrap().holder.unwrap().client.is_some();
        eventually(LIMIT, known);
        lease.release().unwrap();
        waiting.join().unwrap().unwrap();
        for right in ["SELECT", "INSERT", "UPDATE"] {
            server.sql(&database, &format!("REVOKE {right} ON leasehold.lease FROM {role}"));
            let error = client(&url).lock(right).try_acquire().map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Permission, "{right}: {error}");
            mended(&error, &format!("GRANT {right} ON leasehold.lease TO {role};"));
            server.sql(&database, &format!("GRANT {right} ON leasehold.lease TO {role}"));
        }
        // Who may not write there, or has an older schema, goes on without a name.
        for without in [
            format!("REVOKE ALL ON leasehold.client FROM {role}"),
            "DROP TABLE leasehold.client".to_owned(),
        ] {
            server.sql(&database, &without);
            let nameless = client(&url);
            let lease = nameless.lock("nameless").acquire().unwrap();
            let error = || nameless.lock("nameless").acquire_within(ms(500)).unwrap_err();
            eventually(LIMIT, || error().to_string().contains("held by client "));
            let holder = nameless.lock("nameless").inspect().unwrap().holder.unwrap();
            assert_eq!((holder.fence, holder.client), (Some(lease.fence()), None));
            lease.release().unwrap();
            nameless.close().unwrap();
        }
        // Without it, rows that nobody uses stay, and nothing else is amiss.
        server.sql(&database, &format!("REVOKE DELETE ON leasehold.lease FROM {role}"));
        for _ in 0..64 {
            app.lock("n").acquire().unwrap().release().unwrap();
        }
        server.sql(&database, &format!("REVOKE SELECT ON leasehold.version FROM {role}"));
        mended(&refused(&url), &format!("GRANT SELECT ON leasehold.version TO {role};"));
        server.sql(&database, &format!("GRANT SELECT ON leasehold.version TO {role}"));
        server.sql(&database, &format!("REVOKE USAGE ON SCHEMA leasehold FROM {role}"));
        assert_eq!(refused(&url).kind(), ErrorKind::Permission);
        mended(&refused(&url), &format!("GRANT USAGE ON SCHEMA leasehold TO {role};"));
    }

    /// A new user with the rights that one of the documentation has, and its URL.
    fn user(server: &Postgres, database: &str, who: &str, count: usize) -> (String, String) {
        let role = format!("{who}_{database}");
        server.sql(database, &format!("CREATE ROLE {role} LOGIN"));
        for grant in grants("PostgreSQL", who, &role, count) {
            server.sql(database, &grant);
        }
        let url = server.url(database).replace("postgres@", &format!("{role}@"));
        (role, url)
    }

    #[test]
    fn the_rights_to_break_locks_and_to_be_told_who_did_it_are_those_of_the_documentation() {
        let server = Postgres::shared();
        let database = made(server);
        let (app, url) = user(server, &database, "app", 5);
        let (operator, operators) = user(server, &database, "operator", 4);
        let holder = client(&url);
        let told = holder.events().unwrap();
        let breaks = |client: &Client| client.lock("n").break_held(None, "root@web-3");
        let why = || {
            let event = told.next_within(LIMIT).unwrap().expect("it is told");
            (event.kind, event.detail.map(|detail| detail.contains("root@web-3")))
        };
        let taken = || holder.lock("n").ttl(ms(1500)).acquire().unwrap();
        let _lease = taken();
        assert!(matches!(breaks(&client(&operators)), Ok(Break::Broken { .. })));
        assert_eq!(why(), (EventKind::Lost(LossReason::Broken), Some(true)));
        // Who may not read that is told of the loss alone.
        server.sql(&database, &format!("REVOKE SELECT ON leasehold.broken FROM {app}"));
        let lease = taken();
        assert!(matches!(breaks(&client(&operators)), Ok(Break::Broken { .. })));
        assert_eq!(why(), (EventKind::Lost(LossReason::NotHeld), None));
        drop(lease);
        let kept = holder.lock("n").acquire().unwrap();
        for (table, rights) in [
            ("lease", &["SELECT", "UPDATE"][..]),
            ("broken", &["SELECT", "INSERT", "UPDATE", "DELETE"]),
            ("version", &["SELECT"]),
        ] {
            for right in rights {
                let change = format!("{right} ON leasehold.{table}");
                server.sql(&database, &format!("REVOKE {change} FROM {operator}"));
                let error = breaks(&client(&operators)).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Permission, "{change}: {error}");
                mended(&error, &format!("GRANT {change} TO {operator};"));
                #[cfg(feature = "examine")]
                {
                    let found = client(&operators).examine(&Checkup::default()).unwrap();
                    let said: Vec<_> = found.findings.iter().map(|it| &*it.advice).collect();
                    let said = said.join(" ");
                    assert!(is_in_a_grant(&said, right, table), "{change}: {said}");
                }
                server.sql(&database, &format!("GRANT {change} TO {operator}"));
            }
        }
        assert!(matches!(breaks(&client(&operators)), Ok(Break::Broken { .. })));
        drop(kept);
    }

    /// Whether one of these statements grants it on a table.
    #[cfg(feature = "examine")]
    fn is_in_a_grant(said: &str, right: &str, table: &str) -> bool {
        let ends = format!(" ON leasehold.{table} TO ");
        let mut grants = said.split(';').filter_map(|one| one.split_once(&ends));
        grants.any(|(rights, _)| rights.contains(right))
    }

    #[test]
    fn the_rights_to_list_locks_are_those_of_the_documentation() {
        let server = Postgres::shared();
        let database = made(server);
        let (_, url) = user(server, &database, "app", 5);
        let (auditor, auditors) = user(server, &database, "auditor", 4);
        let holder = client(&url);
        let lease = holder.lock("n").acquire().unwrap();
        let listed =
            || -> Result<Vec<_>, leasehold::Error> { client(&auditors).list("*").collect() };
        let holder_of = || listed().unwrap().remove(0).state.holder.unwrap();
        eventually(LIMIT, || holder_of().client.is_some());
        assert_eq!(holder_of().fence, Some(lease.fence()));
        server.sql(&database, &format!("REVOKE SELECT ON leasehold.client FROM {auditor}"));
        assert!(holder_of().client.is_none());
        for table in ["lease", "version"] {
            server.sql(&database, &format!("REVOKE SELECT ON leasehold.{table} FROM {auditor}"));
            assert_eq!(listed().unwrap_err().kind(), ErrorKind::Permission, "{table}");
            let mend = format!("GRANT SELECT ON leasehold.{table} TO {auditor};");
            mended(&listed().unwrap_err(), &mend);
            server.sql(&database, &format!("GRANT SELECT ON leasehold.{table} TO {auditor}"));
        }
        assert_eq!(refused(&auditors).kind(), ErrorKind::Permission);
        lease.release().unwrap();
    }
}

#[cfg(feature = "mysql")]
mod mysql {
    use std::thread;

    use kit::{Mysql, eventually};
    use leasehold::ErrorKind;

    use super::{grants, mended};
    use crate::mysql::made;
    use crate::sql::{client, refused};
    use crate::stores::LIMIT;

    const ALL: [&str; 4] = ["SELECT", "INSERT", "UPDATE", "DELETE"];

    #[test]
    fn the_rights_of_the_documentation_are_enough_for_a_mysql_and_none_is_too_many() {
        let server = Mysql::shared();
        let database = made(server);
        let user = format!("app_{database}");
        server.sql("", &format!("CREATE USER {user}@'%'"));
        let url = server.url(&database).replace("root@", &format!("{user}@"));
        for grant in grants("MySQL", "app", &user, 5) {
            server.sql("", &grant.replace("locks.", &format!("{database}.")));
        }
        let is_mended_by = |error: &leasehold::Error, right: &str, table: &str| {
            let mend = format!("GRANT {right} ON `{database}`.leasehold_{table} TO '{user}'@'%';");
            mended(error, &mend);
        };
        let (app, other) = (client(&url), client(&url));
        let lease = app.lock("n").acquire().unwrap();
        let waiting =
            thread::spawn(move || other.lock("n").acquire_within(LIMIT).unwrap().release());
        eventually(LIMIT, || server.sql(&database, "SELECT COUNT(*) FROM leasehold_waiter") == "1");
        lease.extend().unwrap();
        lease.release().unwrap();
        waiting.join().unwrap().unwrap();
        for right in ["SELECT", "INSERT", "UPDATE"] {
            server.sql(&database, &format!("REVOKE {right} ON leasehold_lease FROM {user}"));
            let error = client(&url).lock(right).try_acquire().map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Permission, "{right}: {error}");
            is_mended_by(&error, right, "lease");
            server.sql(&database, &format!("GRANT {right} ON leasehold_lease TO {user}"));
        }
        let held = app.lock("n").acquire().unwrap();
        for right in ["INSERT", "UPDATE", "DELETE"] {
            server.sql(&database, &format!("REVOKE {right} ON leasehold_waiter FROM {user}"));
            let error = client(&url).lock("n").acquire_within(LIMIT).map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Permission, "{right}: {error}");
            is_mended_by(&error, right, "waiter");
            server.sql(&database, &format!("GRANT {right} ON leasehold_waiter TO {user}"));
        }
        held.release().unwrap();
        for right in ALL {
            server.sql(&database, &format!("REVOKE {right} ON leasehold_broken FROM {user}"));
            let held = app.lock("n").acquire().unwrap();
            let error = app.lock("n").break_held(None, "test").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Permission, "{right}: {error}");
            is_mended_by(&error, right, "broken");
            held.release().unwrap();
            server.sql(&database, &format!("GRANT {right} ON leasehold_broken TO {user}"));
        }
        // Who may not write there goes on without a name.
        for right in ALL {
            server.sql(&database, &format!("REVOKE {right} ON leasehold_client FROM {user}"));
            let nameless = client(&url);
            let lease = nameless.lock("nameless").acquire().unwrap();
            eventually(LIMIT, || {
                let holder = nameless.lock("nameless").inspect().unwrap().holder.unwrap();
                (holder.fence, holder.client) == (Some(lease.fence()), None)
            });
            lease.release().unwrap();
            nameless.close().unwrap();
            server.sql(&database, &format!("GRANT {right} ON leasehold_client TO {user}"));
        }
        // Without it, rows that nobody uses stay, and nothing else is amiss.
        server.sql(&database, "INSERT INTO leasehold_lease VALUES ('old', NULL, 1, 1, 0, 1, 0, 0)");
        let turns = || (0..64).for_each(|_| app.lock("n").acquire().unwrap().release().unwrap());
        let stays =
            || server.sql(&database, "SELECT COUNT(*) FROM leasehold_lease WHERE used = 1") == "1";
        server.sql(&database, &format!("REVOKE DELETE ON leasehold_lease FROM {user}"));
        turns();
        assert!(stays());
        server.sql(&database, &format!("GRANT DELETE ON leasehold_lease TO {user}"));
        turns();
        assert!(!stays());
        server.sql(&database, &format!("REVOKE SELECT ON leasehold_version FROM {user}"));
        assert_eq!(refused(&url).kind(), ErrorKind::Permission);
        is_mended_by(&refused(&url), "SELECT", "version");
    }
}
