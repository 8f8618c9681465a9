-- Takes a lock of which there is no row. Otherwise as take.sql.
--
-- :name :token :ttl :block
INSERT IGNORE INTO leasehold_lease (name, token, fence, last_fence, expiry, used, turn)
SELECT :name, :token, LAST_INSERT_ID(us), us + :block - 1, us + :ttl, us DIV 3600000000, 0
FROM (SELECT :now AS us) clock
