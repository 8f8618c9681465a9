-- Frees a lock whose holder does not: it is taken from a grant, and given as its holder would. What is
-- done about the waiters stands behind this, in the scripts of a give.
--
-- Leaves  what give.lua needs, of each dialect: lock, side, queue, token; holder and stored, the values
--         of lock and side key before; time; tried and attempt, both 0, and ARGV: of a give that names
--         no attempt and used no fence
--
-- KEYS[4]  where it is written who did it
-- ARGV[1]  the token of the grant
-- ARGV[2]  its first fence, which the side key has to name; 0 where the token alone says which it is
-- ARGV[3]  who breaks it
--
-- Replies  as a give: 1 (or 3) if the lock was the grant's, or an earlier copy of this has broken it;
--          0 if it is not: released, run out, or another's by now
--
-- Safe to send twice and to arrive late: no later grant has the token, nor the fence. No fence that was
-- reserved goes back, as it does in a give: the holder may use each of them until it is told.

local lock, side, queue, note, token = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1]
local holder, stored = redis.call('GET', lock), redis.pcall('GET', side)
local time = redis.call('TIME')

if holder ~= token then
  local noted = redis.pcall('GET', note)
  return type(noted) == 'string' and noted:sub(1, 33) == token .. ' ' and 1 or 0
end
-- A side key that is something else names no fence.
local first = type(stored) == 'string' and string.match(stored, '^[01] %d+ (%d+) ' .. token .. '$')
if ARGV[2] ~= '0' and first ~= ARGV[2] then
  return 0
end

do
  local left = redis.call('PTTL', lock)
  if left < 0 then
    return redis.error_reply('WRONGTYPE it has no ttl')
  end
  -- A removal first: a server that is short of memory lets a script write only if it began with one.
  redis.call('DEL', lock)
  local now = string.format('%.0f', time[1] * 1000000 + time[2])
  local kept = string.format('%.0f', math.min(left + 60000, 3600000))
  redis.pcall('SET', note, token .. ' ' .. now .. ' ' .. ARGV[3], 'PX', kept)
end

local ARGV, attempt, tried = { '0 0' }, 0, 0

