-- Looks at a lock without changing anything.
--
-- KEYS[1]  the lock
-- KEYS[2]  its side key, "<last fence reserved> <token it was granted to> <first fence> <queue>"
--
-- Replies  {holder's value or nil, ttl left in ms, side key's value or nil}
--          an error, such as WRONGTYPE
--
-- Safe to send as often as one likes.

return { redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[2]) }
