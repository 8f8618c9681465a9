-- Gives up a token: its place in the queue, and the lock if it is the token's, for the first
-- living waiter. Behind lock.lua and hand_over.lua.
--
-- ARGV[2]  the last fence that was used under it, or 0 where none was
-- ARGV[3]  its member in the queue; empty where it cannot be there
--
-- Replies  1  the lock was the token's and is free or another's now
--          0  it was not
--          2 or 3: as 0 or 1, and the lock is free, but more dead waiters are left than one script
--             removes. Send the same give again
--          an error: the lock was not freed
--
-- Safe to send twice: a second copy finds nothing, or somebody else's token; a free lock it hands
-- over as any other give. A lock with the token and other fences was taken by a take that arrived
-- late, and nobody knows of it: it is freed, and answered with 0.

local fence, member = ARGV[2], ARGV[3]
local mine, taken = holder == token, holder and holder ~= token

local stored = redis.pcall('GET', side)

-- The everyday case: one fence was reserved and used, and nobody waits.
if mine and stored == '0 ' .. fence .. ' ' .. fence .. ' ' .. token then
  redis.call('DEL', lock)
  return 1
end

-- A side key that cannot be read is left alone, and the lock is given all the same.
local queued, last, first, owner
if type(stored) == 'string' then
  queued, last, first, owner = string.match(stored, '^([01]) (%d+) (%d+) (%x+)$')
  queued = queued == '1'
elseif not stored then
  last, first, owner = 0, 0, '0'
  -- A client that may not read the queue takes it for empty.
  queued = redis.pcall('ZRANGE', queue, 0, 0)[1] ~= nil
end

if mine or (queued and not taken) then
  redis.call('DEL', lock)
end
if member ~= '' and not mine and (queued or fence == '0') then
  redis.pcall('ZREM', queue, member)
end
if taken then
  return 0
end

local used, cut, answer = tonumber(fence), false, mine and 1 or 0
if mine and used > 0 and owner == token then
  if used >= tonumber(first) and used <= tonumber(last) then
    cut, last = used < tonumber(last), fence
  else
    answer = 0
  end
end

local left = queued
if queued then
  local time, came, reserved = redis.call('TIME')
  came, reserved, left = hand_over(time[1] * 1000000 + time[2], tonumber(last))
  if came == 'some' then
    return answer + 2
  end
  -- The side key has been written since.
  if reserved ~= tonumber(last) then
    return answer
  end
end
if cut or left ~= queued then
  local noted = string.format('%d %s %s %s', left and 1 or 0, last, first, owner)
  redis.call('SET', side, noted, 'PX', 90000000)
end
return answer
