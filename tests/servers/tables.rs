//! What is said where a database has no tables, or other ones: the statements that make them.

use kit::eventually_some;
use leasehold::{Error, ErrorKind};

use crate::sql::{client, refused};
use crate::stores::LIMIT;

/// Of a database without tables: `is_bare` says whether it has none still, and `say` says statements
/// there as somebody else does. `dot` is between what all tables are called and the name of one.
fn is_told_what_to_run((url, dot): (&str, char), is_bare: impl Fn() -> bool, say: impl Fn(&str)) {
    let client = client(url);
    for error in [
        client.lock("n").try_acquire().map(drop).unwrap_err(),
        client.lock("n").acquire().map(drop).unwrap_err(),
        client.ping().unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Storage, "{error}");
        assert!(error.detail().contains("leasehold init --store URL --apply"), "{error}");
    }
    assert!(is_bare());
    // What is shown is enough, ...
    let table = |name: &str| format!("leasehold{dot}{name}");
    let lease_table = table("lease");
    let shown = shown(&client.ping().unwrap_err());
    assert!(shown.contains(&format!("CREATE TABLE IF NOT EXISTS {lease_table} (")), "{shown}");
    say(&shown);
    let lease = client.lock("n").try_acquire().unwrap().unwrap();
    // ... and so is what is printed, which may be said again.
    say(client.schema().unwrap().unwrap());
    lease.extend().unwrap();
    // Where one is missing, that one is shown.
    lease.release().unwrap();
    say(&format!("DROP TABLE {lease_table}"));
    makes_one(&refused(url), &lease_table, &say);
    let lease = client.lock("n").try_acquire().unwrap().unwrap();
    client.initialize(false).unwrap();
    lease.extend().unwrap();
    lease.release().unwrap();
    assert_eq!(client.initialize(true).unwrap_err().kind(), ErrorKind::BadArgument);
}

/// The statements in an error.
fn shown(error: &Error) -> String {
    let said = error.detail();
    let (begin, end) = (said.find("or this: ").unwrap(), said.rfind("; (").unwrap());
    said[begin + "or this: ".len()..=end].to_owned()
}

/// Says the statement of the error, which has to make this table and no other one.
fn makes_one(error: &Error, table: &str, say: impl Fn(&str)) {
    assert_eq!(error.kind(), ErrorKind::Storage, "{error}");
    let shown = shown(error);
    assert!(shown.starts_with(&format!("CREATE TABLE IF NOT EXISTS {table} (")), "{shown}");
    assert_eq!(shown.matches("CREATE TABLE").count(), 1, "{shown}");
    say(&shown);
}

fn is_left_alone_with_version_2(url: &str) {
    is_of_version_2(&refused(url));
}

fn is_of_version_2(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::Storage, "{error}");
    assert!(error.detail().contains("have version 2, and this program knows 1"), "{error}");
}

/// Of a client that has its connections already, while the tables get another version and the old one
/// again. `say` says statements to the server.
fn meets_another_version(url: &str, dot: char, say: impl Fn(&str)) {
    let client = client(url);
    let held = client.lock("held").renew(false).acquire().unwrap();
    client.lock("0").acquire().unwrap().release().unwrap();
    let set = |number| say(&format!("UPDATE leasehold{dot}version SET number = {number}"));
    set(2);
    is_of_version_2(&eventually_some(LIMIT, || held.extend().err()));
    // Each try has a name of its own: one that succeeds is of a connection that looks later, and its
    // release may be the first that is refused.
    let mut tries = 0;
    let refused = eventually_some(LIMIT, || {
        tries += 1;
        client.lock(tries.to_string()).try_acquire().err()
    });
    is_of_version_2(&refused);
    // What came with the look at the version was not carried out.
    set(1);
    held.extend().unwrap();
    let last = client.lock(tries.to_string()).try_acquire().unwrap();
    last.expect("a refused try takes nothing").release().unwrap();
}

#[cfg(feature = "postgres")]
mod postgres {
    use kit::Postgres;

    use super::{is_left_alone_with_version_2, is_told_what_to_run, meets_another_version};
    use crate::postgres::of;
    use crate::stores::Store;

    #[test]
    fn no_table_is_made_unasked_and_who_misses_one_is_told_what_to_run() {
        let server = Postgres::shared();
        let database = server.database();
        let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'leasehold'";
        let is_bare = || server.sql(&database, schemas) == "0";
        let say = |statements: &str| drop(server.sql(&database, statements));
        is_told_what_to_run((&server.url(&database), '.'), is_bare, say);
    }

    #[test]
    fn tables_of_another_version_are_left_alone() {
        let store = Store::postgres();
        of(&store).sql("INSERT INTO leasehold.version VALUES (2)");
        is_left_alone_with_version_2(&store.url());
    }

    #[test]
    fn another_version_of_the_tables_is_noticed_on_connections_that_are_there() {
        let store = Store::postgres();
        meets_another_version(&store.url(), '.', |text| drop(of(&store).sql(text)));
    }

    #[test]
    fn another_version_of_the_tables_is_noticed_behind_a_pooler() {
        let store = Store::postgres();
        let (_pooler, port) = of(&store).server().pooler();
        let own = format!(":{}/", of(&store).server().port());
        let url = store.url().replace(&own, &format!(":{port}/"));
        meets_another_version(&url, '.', |text| drop(of(&store).sql(text)));
    }
}

#[cfg(feature = "mysql")]
mod mysql {
    use kit::Mysql;
    use leasehold::{Break, ErrorKind};

    use super::{
        is_left_alone_with_version_2, is_told_what_to_run, makes_one, meets_another_version,
    };
    use crate::mysql::of;
    use crate::sql::{client, refused};
    use crate::stores::{Store, ms};

    #[test]
    fn no_table_of_a_mysql_is_made_unasked_and_who_misses_one_is_told_what_to_run() {
        let server = Mysql::shared();
        let database = server.database();
        let is_bare = || server.sql(&database, "SHOW TABLES").is_empty();
        let say = |statements: &str| drop(server.sql(&database, statements));
        is_told_what_to_run((&server.url(&database), '_'), is_bare, say);
    }

    #[test]
    fn who_misses_one_table_of_a_mysql_is_shown_what_makes_it() {
        let store = Store::mysql();
        let (client, say) = (store.client(), |said: &str| drop(of(&store).sql(said)));
        let lease = client.lock("n").acquire().unwrap();
        say("DROP TABLE leasehold_waiter, leasehold_broken");
        let waits = || store.client().lock("n").acquire_within(ms(100)).map(drop).unwrap_err();
        makes_one(&waits(), "leasehold_waiter", say);
        assert_eq!(waits().kind(), ErrorKind::Timeout);
        let breaks = || client.lock("n").break_held(None, "test");
        makes_one(&breaks().unwrap_err(), "leasehold_broken", say);
        assert!(matches!(breaks(), Ok(Break::Broken { .. })));
        assert_eq!(lease.release().unwrap_err().kind(), ErrorKind::Lost);
    }

    #[test]
    fn tables_of_a_mysql_that_have_another_version_are_left_alone() {
        let store = Store::mysql();
        of(&store).sql("INSERT INTO leasehold_version VALUES (2)");
        is_left_alone_with_version_2(&store.url());
    }

    #[test]
    fn another_version_of_a_mysqls_tables_is_noticed_on_connections_that_are_there() {
        let store = Store::mysql();
        meets_another_version(&store.url(), '_', |text| drop(of(&store).sql(text)));
    }

    #[test]
    fn who_misses_a_column_of_a_mysql_is_told_what_adds_it() {
        let store = Store::mysql();
        of(&store).sql("ALTER TABLE leasehold_lease DROP awaited");
        let error = refused(&store.url());
        assert_eq!(error.kind(), ErrorKind::Storage);
        let said = error.detail().to_owned();
        let mend = &said[said.find("ALTER TABLE").unwrap()..said.rfind(';').unwrap()];
        of(&store).sql(mend);
        client(&store.url()).lock("n").acquire().unwrap().release().unwrap();
    }
}
