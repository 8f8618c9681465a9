-- What is left to do where give.sql found nothing: a place in the queue, a lock that has ended or that
-- a late take took under other fences, and one that is free while somebody waits.
WHERE l.name = $1 AND (l.token = $2
    OR EXISTS (SELECT FROM unnest(l.waiters) w WHERE w.token = $2)
    OR l.waiters <> '{}' AND (l.token IS NULL OR l.expiry <= clock_timestamp()))
