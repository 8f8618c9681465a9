-- Raises the fence under which a node granted a lock to the largest that any node granted.
--
-- Needs    side, token and holder (lock.lua)
--
-- ARGV[2]  the attempt
-- ARGV[3]  the fence
--
-- Replies  1 if the lock is the token's by this attempt, and no fence up to this one will be granted
--          here any more; 0 if it is not, or a larger fence was granted here: then another attempt
--          was granted the lock in between, and relies on that; after an error nothing was changed
--
-- Safe to send twice, and to arrive late: by then the lock is not the attempt's any more, or it may
-- still be raised without harm.

local attempt, fence = ARGV[2], tonumber(ARGV[3])

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
  redis.call('SET', side, noted, 'PX', 100800000)
end
return 1
