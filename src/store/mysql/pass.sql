-- Passes a lock on to another token, under just this fence. Sent twice, it finds it passed on. Of
-- several clients that attach one lease, only the first finds the mark.
--
-- :name :token :fence :ttl :to
UPDATE leasehold_lease SET token = :to, fence = :fence, last_fence = :fence,
    expiry = GREATEST(expiry, :now + :ttl), used = :now DIV 3600000000
WHERE name = :name AND expiry > :now AND (token = :token AND :fence BETWEEN fence AND last_fence
    OR token = :to AND fence = :fence)
