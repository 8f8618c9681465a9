//! What somebody may have meant who wrote a key that URLs of this store do not have: each store has
//! other words, and so have its own clients.

/// What to write instead, as far as that is known.
pub(super) fn instead(scheme: &str, key: &str) -> Option<String> {
    // One word is connect_timeout, connect-timeout and connectTimeout.
    let word: String = key.chars().filter(|letter| !matches!(letter, '-' | '_' | '.')).collect();
    let word = word.to_ascii_lowercase();
    let is_one = |of: &str| of.split(' ').any(|one| one == word);
    let common = if is_one(DATABASE) {
        database(scheme)
    } else if is_one(CREDENTIALS) {
        credentials(scheme)
    } else if is_one(TLS) {
        tls(scheme)
    } else if is_one(TIMEOUTS) {
        TIMEOUT.to_owned()
    } else if is_one(CHARSETS) {
        "names are bytes, which no character set changes: leave it out".to_owned()
    } else {
        String::new()
    };
    let own = match scheme {
        #[cfg(feature = "postgres")]
        "postgres" => of_postgres(&word),
        #[cfg(feature = "mysql")]
        "mysql" => of_mysql(&word),
        #[cfg(feature = "zookeeper")]
        "zookeeper" => of_zookeeper(&word),
        #[cfg(feature = "etcd")]
        "etcd" | "etcds" => of_etcd(&word),
        _ => "",
    };
    [own, &common].into_iter().find(|said| !said.is_empty()).map(str::to_owned)
}

// Words that mean the same everywhere.
const DATABASE: &str = "db dbname database schema chroot";
const CREDENTIALS: &str = "user username password passwd token";
const TLS: &str = "ca cacert cert key tls ssl secure usessl requiressl requiretls";
const TIMEOUTS: &str = "timeout connecttimeout connectiontimeout dialtimeout logintimeout commandtimeout \
     requesttimeout sockettimeout readtimeout writetimeout";
const CHARSETS: &str = "charset encoding characterencoding clientencoding collation";

const TIMEOUT: &str = "each request, with resolving names, connecting and TLS, ends by io_timeout: write \
     io_timeout=3s, with a unit";
#[cfg(any(feature = "etcd", feature = "postgres"))]
const DEADLINES: &str = "each request has a deadline (io_timeout), and what keeps a session alive is set \
     here: leave it out";

fn database(scheme: &str) -> String {
    match scheme {
        #[cfg(any(feature = "mysql", feature = "postgres"))]
        "postgres" | "mysql" => {
            format!("the database stands behind the host, as in {scheme}://user@host/database")
        }
        #[cfg(feature = "zookeeper")]
        "zookeeper" => "there are no databases; a chroot stands behind the hosts, as in \
             zookeeper://host/apps"
            .to_owned(),
        #[cfg(feature = "etcd")]
        "etcd" | "etcds" => "there are no databases; for keys of your own write prefix=".to_owned(),
        #[cfg(feature = "sqlite")]
        "sqlite" => {
            "the file's path stands behind the colon, as in sqlite:/var/lib/locks.db".to_owned()
        }
        "memory" => "the store's name stands behind the colon, as in memory:orders".to_owned(),
        "unix" | "redis+unix" => "the number of the database is db=, as in db=2".to_owned(),
        "redis+cluster" | "rediss+cluster" => "a Cluster has only database 0".to_owned(),
        "redis+sentinel" | "rediss+sentinel" => {
            format!("the database stands behind the master, as in {scheme}://host/master/2")
        }
        _ => format!("the database stands behind the host, as in {scheme}://host/2"),
    }
}

fn credentials(scheme: &str) -> String {
    match scheme {
        #[cfg(feature = "sqlite")]
        "sqlite" => "a file has no users: who may read and write it, says mode=".to_owned(),
        "memory" => "a store in memory has no users: leave it out".to_owned(),
        "unix" | "redis+unix" => "write user= and password=".to_owned(),
        _ => format!("it stands before the host, as in {scheme}://user:password@host"),
    }
}

fn tls(scheme: &str) -> String {
    match scheme {
        #[cfg(feature = "postgres")]
        "postgres" => {
            "TLS is sslmode=verify-full, with sslrootcert=, sslcert= and sslkey=".to_owned()
        }
        #[cfg(feature = "mysql")]
        "mysql" => {
            "TLS is ssl-mode=verify_identity, with ssl-ca=, ssl-cert= and ssl-key=".to_owned()
        }
        #[cfg(feature = "zookeeper")]
        "zookeeper" => "it is for TLS: write tls=yes, with ca=, cert= and key=".to_owned(),
        "memory" | "sqlite" | "unix" | "redis+unix" => "TLS is for hosts".to_owned(),
        _ if scheme.starts_with("rediss") || scheme == "etcds" => {
            format!("{scheme}:// says it: leave it out")
        }
        _ => {
            let (name, kind) = scheme.split_at(scheme.find('+').unwrap_or(scheme.len()));
            format!("it is for TLS, as in {name}s{kind}://host")
        }
    }
}

#[cfg(feature = "postgres")]
fn of_postgres(word: &str) -> &'static str {
    match word {
        "hostaddr" => {
            "write the address as the host, and sslmode=verify-ca where the certificate names another"
        }
        "passfile" | "service" | "servicefile" => {
            "the URL has all of it, as in postgres://user:password@host/database; LEASEHOLD_URL or \
             /etc/leasehold.conf keeps it out of a command line"
        }
        "keepalives" | "keepalivesidle" | "keepalivesinterval" | "keepalivescount"
        | "tcpusertimeout" | "tcpkeepalive" => DEADLINES,
        "sslpassword" => "the file in sslkey= has a key without a password: leave it out",
        "krbsrvname" | "gsslib" | "gssdelegation" => {
            "nobody logs in by Kerberos here: leave it out"
        }
        "loadbalancehosts" => "one of the hosts is the primary, and is found: leave it out",
        "schema" | "currentschema" | "searchpath" => {
            "the tables are in the schema leasehold, which has to be in no search path: leave it out"
        }
        _ => "",
    }
}

#[cfg(feature = "mysql")]
fn of_mysql(word: &str) -> &'static str {
    match word {
        "unixsocket" => "the path of a unix socket is socket=",
        "sslverifyservercert" | "sslverifycert" | "verifyservercertificate" => {
            "write ssl-mode=verify_identity"
        }
        "allowpublickeyretrieval" | "getserverpublickey" | "serverpublickeypath" => {
            "a password is told by TLS or a unix socket only: write ssl-mode= or socket="
        }
        "timezone" | "servertimezone" | "connectiontimezone" | "loc" | "parsetime" => {
            "no time zone changes what is said there: leave it out"
        }
        "autocommit" | "sqlmode" | "initcommand" | "sessionvariables" | "allowmultiqueries"
        | "multistatements" | "autoreconnect" | "reconnect" => {
            "each session sets what it needs, and a lost one is made again: leave it out"
        }
        _ => "",
    }
}

#[cfg(feature = "zookeeper")]
fn of_zookeeper(word: &str) -> &'static str {
    match word {
        "sessiontimeout" | "sessiontimeoutms" => {
            "a lock ends with its own ttl and not with a session, which is held for 5 s: leave it out"
        }
        "canbereadonly" | "readonly" => "locks are written: leave it out",
        _ => "",
    }
}

#[cfg(feature = "etcd")]
fn of_etcd(word: &str) -> &'static str {
    match word {
        "endpoints" => "members stand in the place of the host, as in etcd://a,b:2379,c",
        "keepalivetime" | "keepalivetimeout" | "dialkeepalivetime" | "dialkeepalivetimeout" => {
            DEADLINES
        }
        "namespace" => "for keys of your own write prefix=",
        _ => "",
    }
}
