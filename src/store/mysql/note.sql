-- Behind break.sql, in its transaction: word of who did it, if it did.
--
-- :name :token :record (who)
INSERT INTO leasehold_broken (name, token, moment, breaker)
SELECT :name, :token, :now, :record FROM (SELECT 1) done WHERE ROW_COUNT() > 0
ON DUPLICATE KEY UPDATE
    token = VALUES(token), moment = VALUES(moment), breaker = VALUES(breaker)
