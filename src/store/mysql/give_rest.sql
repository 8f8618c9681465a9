-- Behind a give that found no lock of its own: one that has ended, or that a late take took under
-- other fences.
--
-- :name :token
UPDATE leasehold_lease SET token = NULL WHERE name = :name AND token = :token
