-- The row of a name: last fence, hour of the last use, holder (NULL if it is free), and what is
-- left of the lease. ?1 name, ?2 boot, ?3 now
SELECT fence, used, iif(boot = ?2 AND expiry > ?3, token, NULL), expiry - ?3
FROM lease WHERE name = ?1
