-- Takes a lock that is free, on the condition that if_unawaited.sql or if_first.sql adds.
--
-- :name :token :ttl (µs) :block (fences)
--
-- One row is changed, and the answer has the first fence for an id; or none.
--
-- The clock is read before the row is locked: a lease that had to wait for that ends the earlier, and
-- its validity counts from before the request was sent. Sent twice, it finds its own token, and
-- changes nothing; what comes late is given back by whoever sent it, or ends with its ttl.
UPDATE leasehold_lease SET
    turn = (turn + LEAST(GREATEST(:now - fence, 0), 20000)) DIV 2,
    token = :token,
    fence = LAST_INSERT_ID(GREATEST(last_fence + 1, :now)),
    last_fence = GREATEST(last_fence + 1, :now) + :block - 1,
    expiry = :now + :ttl,
    used = :now DIV 3600000000
WHERE name = :name AND (token IS NULL OR expiry <= :now)
