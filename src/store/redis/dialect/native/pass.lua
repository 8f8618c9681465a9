-- Passes a lock from one token to another: from the holder's to the mark of a detached lease, and
-- from the mark to that of the client that attaches it.
--
-- KEYS     lock and side key, as in take.lua
-- ARGV[1]  the token
-- ARGV[2]  the ttl in milliseconds
-- ARGV[3]  the other token
-- ARGV[4]  the fence that the lock is held under: those after it are not used
--
-- Replies  1 if the lock is the other token's, for this ttl or longer; 0 if it is neither's, or
--          held under another fence; after an error it is as it was
--
-- Safe to send twice: the second copy finds the other token's lock. Of several clients that attach
-- one lease, only the first finds the mark.

local lock, side = KEYS[1], KEYS[2]
local token, ttl, other, fence = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]

local holder = redis.pcall('GET', lock)
if type(holder) == 'table' and not string.find(holder.err, 'WRONGTYPE', 1, true) then
  -- Called again, so that the error names this line, and with it the command.
  return redis.call('GET', lock)
end
if holder ~= token and holder ~= other then
  return 0
end
if holder == token then
  local stored = redis.call('GET', side)
  -- Without it, somebody may stand in the queue.
  local queued, last, first, owner = '1', 0, 0, '0'
  if stored then
    queued, last, first, owner = string.match(stored, '^([01]) (%d+) (%d+) (%x+)$')
    if not queued then
      return redis.error_reply('LEASEHOLD the side key of this name holds something else')
    end
    local used, known = tonumber(fence), tonumber(first)
    local ours = owner == token or owner == other
    if known > 0 and not (ours and used >= known and used <= tonumber(last)) then
      return 0
    end
  end
  local noted = queued .. ' ' .. fence .. ' ' .. fence .. ' ' .. other
  redis.call('SET', side, noted, 'PX', 90000000)
  redis.call('SET', lock, other, 'KEEPTTL')
end
if redis.call('PTTL', lock) < ttl then
  redis.call('PEXPIRE', lock, ARGV[2])
end
return 1
