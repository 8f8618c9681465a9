-- Removes the row of a name. ?1 name
DELETE FROM lease WHERE name = ?1
