-- Notes the hour of a grant or an extension; apart from them, because it rewrites an index and is
-- needed only when the hour changed. ?1 name, ?2 hour
UPDATE lease SET used = ?2 WHERE name = ?1
