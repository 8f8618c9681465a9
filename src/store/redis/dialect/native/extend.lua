-- Sets the ttl of a lock that is the token's.
--
-- KEYS[1]  the lock, and nothing else: this must work while a Cluster moves the slot
-- ARGV[1]  the token
-- ARGV[2]  the ttl in milliseconds
-- ARGV[3]  "grow": never make the ttl shorter; "set": make it just this
--
-- Replies  1 if the lock is the token's, for this ttl or longer; 0 if it is not the token's; after
--          an error nothing was changed
--
-- Safe to send twice and to arrive late: "grow" never cuts what a later extension has promised, and
-- "set" is only sent for a lease that nobody relies on any more.

local lock = KEYS[1]
local token, ttl, mode = ARGV[1], ARGV[2], ARGV[3]

local holder = redis.pcall('GET', lock)
if type(holder) == 'table' and not string.find(holder.err, 'WRONGTYPE', 1, true) then
  -- Called again, so that the error names this line, and with it the command.
  return redis.call('GET', lock)
end
if holder ~= token then
  return 0
end

if mode == 'set' or redis.call('PTTL', lock) < tonumber(ttl) then
  redis.call('PEXPIRE', lock, ttl)
end
return 1
