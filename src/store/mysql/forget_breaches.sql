-- Removes some words of who broke what, that nobody asks for any more.
DELETE FROM leasehold_broken WHERE moment < :now - 3600000000 ORDER BY moment LIMIT 16
