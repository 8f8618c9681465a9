-- Takes a lock for a token, or stands in its queue.
--
-- $1 name  $2 token  $3 ttl in ms  $4 fences  $5 the ticket of an earlier poll or 0, or -1 for a try
-- $6 ear   $7 for how many ms it would be handed the lock
--
-- Answers one row: the server's time in µs; whether the lock is the token's; and
--   if so, the first fence, and how many there are
--   if not, for how many µs it stays taken, the ticket or 0, and how many stand before it
--
-- Safe to send twice: a second copy finds the token's lock, whose end it never brings forward, or
-- its place. A try that finds the lock taken writes nothing.
WITH taken AS MATERIALIZED (
    SELECT expiry FROM leasehold.lease
    WHERE $5 < 0 AND name = $1 AND token <> $2 AND expiry > clock_timestamp()
), done AS (
    INSERT INTO leasehold.lease AS l (name, token, first, last, expiry, used)
    SELECT $1, $2, us, us + $4 - 1, now + $3 * interval '1 ms', us / 3600000000
    FROM (SELECT clock_timestamp() AS now) clock,
        LATERAL (SELECT CAST(date_part('epoch', now) * 1000000 AS bigint) AS us) micros
    WHERE NOT EXISTS (SELECT FROM taken)
    -- From here on the row is locked, and l is its last version.
    ON CONFLICT (name) DO UPDATE SET (token, first, last, expiry, used, ear, waiters) = (
        SELECT
            CASE WHEN is_held THEN l.token ELSE coalesce(heir.token, $2) END,
            CASE WHEN is_held THEN l.first ELSE fence END,
            CASE WHEN is_held THEN l.last
                WHEN heir.token IS NULL THEN fence + $4 - 1 ELSE fence + 63 END,
            CASE WHEN is_mine THEN greatest(l.expiry, now + $3 * interval '1 ms')
                WHEN is_held THEN l.expiry
                ELSE now + coalesce(heir.span, $3) * interval '1 ms' END,
            us / 3600000000,
            heir.ear,
            CASE WHEN l.waiters = '{}' AND NOT is_waiting THEN l.waiters ELSE ARRAY(
                SELECT w FROM unnest(l.waiters) w
                WHERE w.token <> $2 AND w.ticket <> coalesce(own, 0) AND (is_held
                    OR w.ticket > coalesce(heir.ticket, own, 9223372036854775807))
                UNION ALL
                SELECT ROW(coalesce(own, greatest(us, newest + 1)), $2, $6, $7)::leasehold.waiter
                WHERE is_waiting
                ORDER BY 1
            ) END
        FROM (SELECT clock_timestamp() AS now) clock,
            LATERAL (SELECT CAST(date_part('epoch', now) * 1000000 AS bigint) AS us) micros,
            LATERAL (
                SELECT greatest(l.last + 1, us) AS fence,
                    l.token IS NOT NULL AND l.expiry > now AS is_held,
                    l.token IS NOT DISTINCT FROM $2 AND l.expiry > now AS is_mine,
                    (l.waiters[cardinality(l.waiters)]).ticket AS newest,
                    CASE WHEN $5 > 0 THEN $5
                        ELSE (SELECT w.ticket FROM unnest(l.waiters) w WHERE w.token = $2)
                    END AS own
            ) found
            -- The first one before it whose wake-up connection is there, as in hand_over.sql.
            LEFT JOIN LATERAL (
                SELECT w.* FROM unnest(l.waiters) w
                WHERE NOT is_held AND w.token <> $2 AND w.ticket < coalesce(own, w.ticket + 1)
                    AND NOT CASE WHEN pg_try_advisory_lock_shared(w.ear)
                        THEN pg_advisory_unlock_shared(w.ear) ELSE false END
                LIMIT 1
            ) heir ON true,
            LATERAL (
                SELECT $5 >= 0 AND NOT is_mine AND (is_held OR heir.token IS NOT NULL) AS is_waiting
            ) place
    )
    RETURNING
        CAST(date_part('epoch', clock_timestamp()) * 1000000 AS bigint) AS server,
        CAST(l.token = $2 AS integer)::bigint AS is_mine,
        CASE WHEN l.token = $2 THEN l.first
            ELSE CAST(date_part('epoch', l.expiry - clock_timestamp()) * 1000000 AS bigint) END AS a,
        CASE WHEN l.token = $2 THEN l.last - l.first + 1
            ELSE (SELECT w.ticket FROM unnest(l.waiters) w WHERE w.token = $2) END AS b,
        CASE WHEN l.token <> $2 THEN (
            SELECT place - 1 FROM unnest(l.waiters) WITH ORDINALITY w (ticket, token, ear, span, place)
            WHERE w.token = $2
        ) END AS rank,
        -- Of a grant alone the disk has to know before anybody else does.
        CASE WHEN l.ear IS NOT NULL THEN pg_notify('leasehold_' || to_hex(l.ear), concat_ws(' ',
                l.token, l.first, l.last - l.first + 1,
                CAST(date_part('epoch', clock_timestamp()) * 1000000 AS bigint),
                CAST(date_part('epoch', l.expiry - clock_timestamp()) * 1000000 AS bigint),
                encode(l.name, 'hex'),
                CASE WHEN current_setting('synchronous_standby_names') <> '' THEN 'standbys' END))::text
            WHEN l.token <> $2 THEN set_config('synchronous_commit', 'off', true) END AS told
)
SELECT server, is_mine, a, b, rank, told FROM done
UNION ALL
SELECT CAST(date_part('epoch', clock_timestamp()) * 1000000 AS bigint), 0,
    CAST(date_part('epoch', expiry - clock_timestamp()) * 1000000 AS bigint), 0, 0, NULL
FROM taken
