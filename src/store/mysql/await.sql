-- Says on the lock's row until when somebody may wait, before a place is made or kept in the same
-- transaction: the place ends by then at the latest. So one who comes behind all looks at no place
-- once that is over. It makes the row where there is none.
--
-- :name :window
--
-- A second more than the place lives, since others may keep the row for so long; and it is written
-- anew only where that is needed.
INSERT INTO leasehold_lease (name, fence, last_fence, expiry, used, turn, awaited)
VALUES (:name, 0, 0, 0, :now DIV 3600000000, 0, :now + :window + 1000000)
ON DUPLICATE KEY UPDATE awaited =
    IF(awaited BETWEEN :now + :window AND :now + 120000000, awaited, VALUES(awaited))
