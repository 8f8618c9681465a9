-- Tells the waiter that was handed the lock. Where none was, nothing is granted, and nobody waits for
-- the disk: a server that crashes now leaves the lock taken until its end.
RETURNING CASE
    WHEN l.ear IS NULL THEN set_config('synchronous_commit', 'off', true)
    ELSE pg_notify('leasehold_' || to_hex(l.ear), concat_ws(' ',
        l.token, l.first, l.last - l.first + 1,
        CAST(date_part('epoch', clock_timestamp()) * 1000000 AS bigint),
        CAST(date_part('epoch', l.expiry - clock_timestamp()) * 1000000 AS bigint),
        encode(l.name, 'hex')))::text END
