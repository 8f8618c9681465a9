-- Sets the ttl of a lock that is the token's, claims it, or passes it on to another token: from the
-- holder's to the mark of a detached lease, and from the mark to that of the client that attaches it.
--
-- Needs    lock, side, token and holder (lock.lua)
--
-- KEYS     to grow or set the lock alone: this must work while a Cluster moves the slot; else the
--          side key, too
-- ARGV[2]  the ttl in milliseconds
-- ARGV[3]  "grow": never make the ttl shorter; "set": make it just this; "claim": as "grow", and keep
--          the side key too; "pass": as "grow", and the lock becomes the other token's
-- ARGV[4]  to claim or pass it: a fence of the grant, which is all of it once it was passed
-- ARGV[5]  to pass it: the other token
--
-- Replies  1, or to a claim the server time in µs, if the lock is the token's, or the other one's by
--          now, for this ttl or longer; 0 if it is not, or held under other fences; after an error
--          whose it is has not changed
--
-- Safe to send twice and to arrive late: "grow" never cuts what a later extension has promised, and
-- "set" is only sent for a lease that nobody relies on any more. Of several clients that attach one
-- lease, only the first finds the mark.

local ttl, mode, fence, other = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local is_claim, is_pass = mode == 'claim', mode == 'pass'

if holder ~= token and not (is_pass and holder == other) then
  return 0
end
if is_claim or is_pass and holder == token then
  local stored = redis.call('GET', side)
  -- Without it, somebody may stand in the queue.
  local queued, last, first, owner = '1', 0, 0, '0'
  if stored then
    queued, last, first, owner = string.match(stored, '^([01]) (%d+) (%d+) (%x+)$')
    if not queued then
      return redis.error_reply('LEASEHOLD the side key of this name holds something else')
    end
    last, first = tonumber(last), tonumber(first)
  end
  local used, ours = tonumber(fence), owner == token or owner == other
  if first > 0 and not (ours and used >= first and used <= last) then
    return 0
  end
  local noted
  if is_pass then
    noted = queued .. ' ' .. fence .. ' ' .. fence .. ' ' .. other
  elseif first == 0 then
    -- With the side key it is lost how long the block is: no block is longer than this.
    noted = string.format('1 %.0f %s %s', math.max(last, used + 1023), fence, token)
  end
  if not is_pass then
    -- First: a server that is short of memory lets a script SET only behind another write.
    redis.call('PEXPIRE', side, 100800000)
  end
  if noted then
    redis.call('SET', side, noted, 'PX', 100800000)
  end
  if is_pass then
    redis.call('SET', lock, other, 'KEEPTTL')
  end
end

if mode == 'set' or redis.call('PTTL', lock) < tonumber(ttl) then
  redis.call('PEXPIRE', lock, ttl)
end
if not is_claim then
  return 1
end
local time = redis.call('TIME')
return time[1] * 1000000 + time[2]
