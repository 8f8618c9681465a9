-- What some clients say of themselves: a row for each that is known.
--
-- :clients :most (bytes of each)
SELECT id, LEFT(record, :most) FROM leasehold_client WHERE id IN (:clients) AND expiry > :now
