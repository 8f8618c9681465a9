-- Takes a lock for a token, or stands in its queue: what quick_take.lua and quick_join.lua leave to do.
--
-- Needs    ttl, stored and time (quick_take.lua), all that lock.lua leaves, hand_over (hand_over.lua)

if type(holder) == 'table' then
  return 'F it is of another type'
end

local now = time[1] * 1000000 + time[2]
local place, fences = ARGV[3] or '', ARGV[5] or 1
local member = place ~= '' and token .. ' ' .. place
local earlier = string.match(ARGV[4] or '', '^join (%d+)$')

local SIDE_TTL, MAX_FENCE = ARGV[6] or 100800000, 9007199254740991
local queued, last, first, owner = false, 0, 0, '0'
if stored then
  queued, last, first, owner = string.match(stored, '^([01]) (%d+) (%d+) (%x+)$')
  if not queued then
    return redis.error_reply('LEASEHOLD the side key of this name holds something else')
  end
  queued, last, first = queued == '1', tonumber(last), tonumber(first)
end

local function note(anybody, ...)
  local noted = string.format('%d %.0f %.0f %s', anybody and 1 or 0, ...)
  redis.call('SET', side, noted, 'PX', SIDE_TTL)
end

local function stand()
  local ticket = earlier ~= '0' and earlier or redis.call('ZSCORE', queue, member)
  if not ticket then
    local newest = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
    ticket = newest and math.max(now, tonumber(newest) + 1) or now
  end
  ticket = tonumber(ticket)
  redis.call('ZADD', queue, string.format('%.0f', ticket), member)
  redis.call('PEXPIRE', queue, 300000)
  return ticket
end

local function busy(left, ticket, ours)
  local rank = ticket and redis.call('ZRANK', queue, member) or 0
  return string.format('B %.0f %.0f %.0f %.0f %d', left, now, rank, ticket or 0, ours and 1 or 0)
end

if holder and holder ~= token then
  local left, ticket = redis.call('PTTL', lock), nil
  if left < 0 then
    return 'F it has no ttl'
  end
  if earlier then
    if not queued then
      -- Written before the queue: a script that finds a 0 here does not look there.
      note(true, last, first, owner)
    end
    ticket = stand()
  end
  return busy(left, ticket, owner == holder and first > 0)
end

if holder then
  if redis.call('PTTL', lock) < tonumber(ttl) then
    redis.call('PEXPIRE', lock, ttl)
  end
  if owner == token then
    redis.call('PEXPIRE', side, SIDE_TTL)
    if member and queued then
      redis.call('ZREM', queue, member)
    end
    return string.format('G %.0f %.0f %.0f', first, last - first + 1, now)
  end
end

if math.max(last + 1, now) > MAX_FENCE then
  return redis.error_reply('LEASEHOLD the fence of this name has reached the end of its range')
end
if not stored then
  -- A client that may not read the queue takes it for empty.
  queued = redis.pcall('ZRANGE', queue, 0, 0)[1] ~= nil
end
local may_stand = member and queued
if queued and not holder then
  redis.call('DEL', lock)
  local ticket = earlier and stand() or nil
  local came, left
  came, last, queued, left = hand_over(now, last, member)
  if came == 'given' or came == 'some' then
    return busy(left or 0, ticket, true)
  end
  -- A client that may not publish cannot leave the lock to those before it: all may be dead.
end
if may_stand then
  redis.call('ZREM', queue, member)
end

first = math.max(last + 1, now)
last = math.min(first + tonumber(fences) - 1, MAX_FENCE)
note(queued, last, first, token)
if queued then
  redis.pcall('PEXPIRE', queue, 300000)
end
if not holder then
  redis.call('SET', lock, token, 'PX', ttl)
end
return string.format('G %.0f %.0f %.0f', first, last - first + 1, now)
