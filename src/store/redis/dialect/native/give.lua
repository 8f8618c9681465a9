-- Gives up a token: what quick_give.lua and quick_hand_over.lua leave to do.
--
-- Needs    ARGV of quick_give.lua; all that quick_give.lua leaves, or break.lua; hand_over (hand_over.lua)

local fence = string.match(ARGV[1], '^0 (%d+)')
local mine, taken = holder == token, holder and holder ~= token

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
if ARGV[2] and not mine and (queued or fence == '0') then
  redis.pcall('ZREM', queue, token .. ' ' .. ARGV[2])
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
  local came, reserved
  time = time or redis.call('TIME')
  came, reserved, left = hand_over(time[1] * 1000000 + time[2], tonumber(last), nil, tried)
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
  redis.call('SET', side, noted, 'PX', 100800000)
end
return answer
