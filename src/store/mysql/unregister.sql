-- Forgets what a client said of itself. Nobody waits for the answer.
--
-- :clients (one)
DELETE FROM leasehold_client WHERE id = :clients
