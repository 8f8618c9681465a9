-- Takes a lock for a token, or stands in its queue: what it is given and replies, and the everyday
-- case. Behind lock.lua; the rest, with functions that cost a server time to make, is in hand_over.lua
-- and take.lua behind this.
--
-- ARGV[2]  the ttl in milliseconds
-- ARGV[3]  "try" or "join"
-- ARGV[4]  how many fences
-- ARGV[5]  its member in the queue: of a join, and of a try that may stand there already
-- ARGV[6]  of a join: the ticket of an earlier poll, or 0
--
-- Replies  "G <first fence> <fences> <server time in µs>"  the lock is the token's
--          "B <ttl left in ms> <server time> <rank> <ticket> <1 if the holder is of this library,
--             else 0>"     it is not. With no ttl left, others may be before the token: poll again
--          "F <why>"       the key is not a lease
--          an error        the lock is not the token's
--
-- Safe to send twice: a second copy finds the token's lock, whose ttl it never shortens, or its
-- place. The fence is written before the lock: when the second write fails, a number is skipped.

local ttl, mode, member = ARGV[2], ARGV[3], ARGV[5]

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if type(holder) == 'table' then
  return 'F it is of another type'
end

local SIDE_TTL = 90000000
local stored = redis.call('GET', side)

-- The everyday case: the lock is free, and nobody waits for it.
if stored and not holder and ARGV[4] == '1' then
  local last = string.match(stored, '^0 (%d+) %d+ %x+$')
  if last and tonumber(last) < now then
    local fence = string.format('%.0f', now)
    redis.call('SET', side, '0 ' .. fence .. ' ' .. fence .. ' ' .. token, 'PX', SIDE_TTL)
    redis.call('SET', lock, token, 'PX', ttl)
    return 'G ' .. fence .. ' 1 ' .. fence
  end
end

