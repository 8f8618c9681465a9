-- In front of what looks at a lock or changes it, in the same packet: that the tables are still those that
-- the statements here go with. It costs as much as half of a take, so that a connection asks once in a
-- while.
--
-- Answers one row, or an error where the version is another one, as of a sum that is larger than the
-- largest number: what stands behind it is not carried out.
SELECT 18446744073709551615 + IF(MAX(number) = 1, 0, 1) FROM leasehold_version
