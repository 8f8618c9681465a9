-- Reads who broke a grant of a name (KEYS[4]; the others are those of its name), and changes nothing.
--
-- Replies  "<token of the grant> <server time in µs> <who>", or nil

return redis.call('GET', KEYS[4])
