-- The everyday case of a give, whose arguments give.lua describes: the side key is as an everyday take
-- left it, so nobody waits.
--
-- Leaves   nothing: it replies, or has changed nothing
--
-- KEYS     those of lock.lua

if redis.pcall('GET', KEYS[2]) == ARGV[1]
  and redis.pcall('GET', KEYS[1]) == ARGV[1]:sub(-32) then
  redis.call('DEL', KEYS[1])
  return 1
end

