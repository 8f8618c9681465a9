-- What comes before every vote: behind guard.lua, whose "Q ..." and "T ..." are replies here too.
-- Whose the lock is; a table where the key is of another type.

local lock, side = KEYS[1], KEYS[2]
local token, ttl = ARGV[1], ARGV[2]

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local refused = refusal(now)
if refused then
  return refused
end

local holder = redis.pcall('GET', lock)
if type(holder) == 'table' and not string.find(holder.err, 'WRONGTYPE', 1, true) then
  -- Called again, so that the error names this line, and with it the command.
  return redis.call('GET', lock)
end
