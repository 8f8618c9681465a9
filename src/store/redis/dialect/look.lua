-- Reads a lock (KEYS[1]) and its side key (KEYS[2]) without changing anything.
--
-- Replies  {holder's value or nil, ttl left in ms, side key's value or nil}, or an error

return { redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[2]) }
