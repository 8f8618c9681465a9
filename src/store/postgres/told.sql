-- Tells the waiter that was handed the lock. Where none was, nothing is granted, and nobody waits for
-- the disk: a server that crashes now leaves the lock taken until its end. The last word says whether
-- grants wait for standbys, as in take.sql.
RETURNING CASE
    WHEN l.ear IS NULL THEN set_config('synchronous_commit', 'off', true)
    ELSE pg_notify('leasehold_' || to_hex(l.ear), concat_ws(' ',
        l.token, l.first, l.last - l.first + 1,
        CAST(date_part('epoch', clock_timestamp()) * 1000000 AS bigint),
        CAST(date_part('epoch', l.expiry - clock_timestamp()) * 1000000 AS bigint),
        encode(l.name, 'hex'),
        CASE WHEN current_setting('synchronous_standby_names') <> '' THEN 'standbys' END))::text END
