-- Keeps what a client says of itself. Nothing depends on it.
--
-- :clients (one) :record :ttl
INSERT INTO leasehold_client (id, record, expiry) VALUES (:clients, :record, :now + :ttl)
ON DUPLICATE KEY UPDATE record = VALUES(record), expiry = VALUES(expiry)
