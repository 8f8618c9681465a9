-- Removes some records that are over.
DELETE FROM leasehold_client WHERE expiry <= :now ORDER BY expiry LIMIT 16
