-- Raises the fence under which a node granted a lock to the largest fence that any node granted.
-- Behind guard.lua, which has the last key and the first two arguments.
--
-- KEYS[1]  the lock
-- KEYS[2]  its side key, "<0 or 1> <last fence> <attempt of the last grant> <token it was for>"
-- ARGV[1]  the token
-- ARGV[2]  the attempt
-- ARGV[3]  the fence
--
-- Replies  1  the lock is the token's by this attempt, and no fence up to this one will be granted
--             here any more
--          0  it is not, or a larger fence was granted here
--          "Q ..." and "T ..."  guard.lua says what they mean
--          an error: nothing was changed
--
-- Both checks are what makes the fences sound: where the lock is not the attempt's any more, or a
-- larger fence was granted, another attempt was granted the lock in between, and relies on that.
--
-- Safe to send twice: the second copy changes nothing. Safe to arrive late: by then the lock is not
-- the attempt's any more, or it may still be raised without harm.

local lock, side = KEYS[1], KEYS[2]
local token, attempt, fence = ARGV[1], ARGV[2], tonumber(ARGV[3])

local time = redis.call('TIME')
local refused = refusal(time[1] * 1000000 + time[2])
if refused then
  return refused
end

local holder = redis.pcall('GET', lock)
if type(holder) == 'table' and not string.find(holder.err, 'WRONGTYPE', 1, true) then
  -- Called again, so that the error names this line, and with it the command.
  return redis.call('GET', lock)
end
if holder ~= token then
  return 0
end
local stored = redis.call('GET', side) or ''
local queued, last, known, owner = string.match(stored, '^([01]) (%d+) (%d+) (%x+)$')
if owner ~= token or known ~= attempt or tonumber(last) > fence then
  return 0
end
if fence > 9007199254740991 then
  return redis.error_reply('LEASEHOLD the fence of this name has reached the end of its range')
end
if tonumber(last) < fence then
  local noted = string.format('%s %.0f %s %s', queued, fence, known, owner)
  redis.call('SET', side, noted, 'PX', 90000000)
end
return 1
