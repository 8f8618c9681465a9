-- Leaves word of who breaks a grant, in the transaction in which give.sql sets its lock free.
--
-- $1 name  $2 token  $3 the first fence of the grant, or 0 where the token alone says which  $4 who
--
-- Answers a row if the lock is the grant's. From then on its row is locked.
--
-- Safe to send twice and late: no later grant has the token.
WITH noted AS (
    INSERT INTO leasehold.broken AS b (name, token, at, by)
    SELECT name, token, clock_timestamp(), $4 FROM leasehold.lease
    WHERE name = $1 AND token = $2 AND $3 IN (0, first) AND expiry > clock_timestamp()
    FOR UPDATE
    ON CONFLICT (name) DO UPDATE SET token = excluded.token, at = excluded.at, by = excluded.by
    RETURNING 1::bigint AS done
), swept AS (
    -- Behind the note, and waiting for nobody: two breaks would wait for each other's notes.
    DELETE FROM leasehold.broken WHERE EXISTS (SELECT FROM noted) AND name IN (
        SELECT name FROM leasehold.broken
        WHERE at < now() - interval '1 hour' AND name <> $1 FOR UPDATE SKIP LOCKED
    )
)
SELECT done FROM noted
