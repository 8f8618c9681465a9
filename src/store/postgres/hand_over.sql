-- Sets a lock free for the first living waiter, in front of give.sql and give_rest.sql, which say
-- when, and of told.sql.
--
-- $1 name  $2 token  $3 the last fence that was used under it, or 0 where none was
--
-- Safe to send twice: a second copy finds nothing, or somebody else's token.
UPDATE leasehold.lease l SET (token, first, last, expiry, ear, waiters) = (
    SELECT
        CASE WHEN is_taken THEN l.token ELSE heir.token END,
        coalesce(heir.fence, l.first),
        CASE WHEN heir.token IS NOT NULL THEN heir.fence + 63
            WHEN l.token = $2 AND $3 BETWEEN l.first AND l.last THEN $3
            ELSE l.last END,
        coalesce(now + heir.span * interval '1 ms', l.expiry),
        heir.ear,
        CASE WHEN l.waiters = '{}' THEN l.waiters ELSE ARRAY(
            SELECT w FROM unnest(l.waiters) w
            WHERE w.token <> $2 AND (is_taken OR w.ticket > heir.ticket)
        ) END
    FROM (SELECT clock_timestamp() AS now) clock,
        LATERAL (SELECT coalesce(l.token <> $2 AND l.expiry > now, false) AS is_taken) found
        -- The first one whose wake-up connection is there. The locks of the others are not kept: the
        -- server has room for some thousand.
        LEFT JOIN LATERAL (
            SELECT w.*, greatest(l.last + 1, CAST(date_part('epoch', now) * 1000000 AS bigint)) AS fence
            FROM unnest(l.waiters) w
            WHERE NOT is_taken AND w.token <> $2
                AND NOT CASE WHEN pg_try_advisory_lock_shared(w.ear)
                    THEN pg_advisory_unlock_shared(w.ear) ELSE false END
            LIMIT 1
        ) heir ON true
)
