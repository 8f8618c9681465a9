-- What `examine.rs` looks at. It is one row that every user may read, whether there are tables or not.
SELECT current_setting('server_version'),
       current_user,
       current_setting('fsync'),
       current_setting('synchronous_commit'),
       current_setting('autovacuum') = 'on'
           AND NOT 'autovacuum_enabled=false' = ANY (coalesce(lease.reloptions, '{}')),
       coalesce(nullif(current_setting('idle_session_timeout', true), '0'), ''),
       (SELECT sum(numbackends) FROM pg_stat_database),
       current_setting('max_connections')::bigint
           - current_setting('superuser_reserved_connections')::bigint,
       lease.oid IS NOT NULL AND version.oid IS NOT NULL,
       coalesce(dead.n_dead_tup, 0),
       coalesce(extract(epoch FROM (SELECT max(now() - xact_start) FROM pg_stat_activity
                                    WHERE backend_xmin IS NOT NULL))::bigint, 0),
       (SELECT count(*) FROM pg_stat_replication),
       current_setting('synchronous_standby_names'),
       -- How many of them have to confirm, and how many of those that are there may. Not every user may
       -- see what they are.
       coalesce(substring(current_setting('synchronous_standby_names')
                          FROM '^ *(?:[[:alpha:]]+ +)?([0-9]+) *[(]'), '1'),
       (SELECT count(*) FILTER (WHERE sync_state IN ('sync', 'quorum') OR sync_state IS NULL)
        FROM pg_stat_replication),
       (SELECT count(*) FROM pg_stat_activity
        WHERE wait_event = 'SyncRep' AND xact_start < clock_timestamp() - interval '1 s'),
       pg_is_in_recovery(),
       current_setting('full_page_writes')
FROM (SELECT) AS one
LEFT JOIN pg_namespace AS space ON space.nspname = 'leasehold'
LEFT JOIN pg_class AS lease ON lease.relnamespace = space.oid AND lease.relname = 'lease'
LEFT JOIN pg_class AS version ON version.relnamespace = space.oid AND version.relname = 'version'
LEFT JOIN pg_stat_all_tables AS dead ON dead.relid = lease.oid
