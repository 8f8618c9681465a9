-- Keeps what a client says of itself, and removes some rows that are over.
--
-- $1 client  $2 record  $3 for how many ms
--
-- Answers one row. Safe to send twice and late: nothing depends on it, and nobody waits for the disk.
WITH over AS (
    DELETE FROM leasehold.client WHERE id IN (
        SELECT id FROM leasehold.client WHERE expiry < clock_timestamp() AND id <> $1
        LIMIT 16 FOR UPDATE SKIP LOCKED)
)
INSERT INTO leasehold.client AS c (id, record, expiry)
VALUES ($1, $2, clock_timestamp() + $3 * interval '1 ms')
ON CONFLICT (id) DO UPDATE SET record = excluded.record, expiry = excluded.expiry
RETURNING set_config('synchronous_commit', 'off', true)
