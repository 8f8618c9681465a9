-- One node's part in taking a lock: it grants, or stands the token in its queue, which only says who
-- is told that the lock is free.
--
-- Needs    now (guarded.lua), attempt (line.lua), all that lock.lua leaves
--
-- ARGV[1]  "0 <attempt> <attempt> <token>". The attempt is the client's own clock in µs, larger each
--          time that the client asks
-- ARGV[2]  the ttl in milliseconds
-- ARGV[3]  how many fences; absent, like what follows, for one
-- ARGV[4]  the client's channel; absent where it has none, and so no place in the queue
-- ARGV[5]  to stand in the queue: the ticket of an earlier poll, or 0; absent where it only tries
--
-- Replies  "G <first fence>"  the lock is the token's here, by this attempt
--          1            the same; its fence is the attempt
--          "B <ttl left in ms> <rank> <ticket> <16 hex digits that tell holders apart>
--             <1 if the holder is of this library, else 0>"
--                       it is not. With no ttl left it is free, and this attempt is over
--          "F <why>"    the key is not a lease
--          an error     this attempt was granted nothing here
--
-- Safe to send twice: the second copy gets the same fence, or finds that its grant was given up, or
-- overtaken by a later attempt of the token, and takes nothing. The fence is written before the
-- lock: when the second write fails, a number is skipped. (In the everyday case the lock is set
-- first, and is free again when the fence cannot be written.)

local ttl, member = ARGV[2], ARGV[4] and token .. ' 0 ' .. ARGV[4]
local more = tonumber(ARGV[3] or 1) - 1

if attempt > now + 3600000000 then
  return redis.error_reply("LEASEHOLD this client's clock is more than an hour ahead of this server's")
end
if type(holder) == 'table' then
  return 'F it is of another type'
end

local stored = redis.call('GET', side)
local queued, last, known, owner = false, 0, 0, '0'
if stored then
  queued, last, known, owner = string.match(stored, '^([01]) (%d+) (%d+) (%x+)$')
  if not queued then
    return redis.error_reply('LEASEHOLD the side key of this name holds something else')
  end
  queued, last, known = queued == '1', tonumber(last), tonumber(known)
end

local SIDE_TTL, MAX_FENCE = 100800000, 9007199254740991
local function note(anybody, ...)
  local noted = string.format('%d %.0f %.0f %s', anybody and 1 or 0, ...)
  redis.call('SET', side, noted, 'PX', SIDE_TTL)
end

local function busy(left, ticket)
  local rank = ticket and redis.call('ZRANK', queue, member) or 0
  -- Other programs may keep a value of any kind and length under their names.
  local who = string.sub(redis.sha1hex(string.sub(holder or '', 1, 64)), 1, 16)
  local ours = holder == owner and last > 0 and 1 or 0
  return string.format('B %.0f %.0f %.0f %s %d', left, rank, ticket or 0, who, ours)
end

if holder and holder ~= token then
  local left, ticket = redis.call('PTTL', lock), nil
  if left < 0 then
    return 'F it has no ttl'
  end
  if ARGV[5] then
    if not queued then
      -- Written before the queue: a script that finds a 0 here does not look there.
      note(true, last, known, owner)
    end
    ticket = ARGV[5] ~= '0' and ARGV[5] or redis.call('ZSCORE', queue, member)
    if not ticket then
      local newest = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2]
      ticket = newest and math.max(now, tonumber(newest) + 1) or now
    end
    ticket = tonumber(ticket)
    redis.call('ZADD', queue, string.format('%.0f', ticket), member)
    redis.call('PEXPIRE', queue, 300000)
  end
  return busy(left, ticket)
end

if owner == token and attempt < known then
  return busy(holder and math.max(redis.call('PTTL', lock), 0) or 0)
elseif owner == token and attempt == known then
  if not holder then
    return busy(0)
  end
  if redis.call('PTTL', lock) < tonumber(ttl) then
    redis.call('PEXPIRE', lock, ttl)
  end
  return string.format('G %.0f', last - more)
end

local fence = math.max(last + 1, attempt)
if fence + more > MAX_FENCE then
  return redis.error_reply('LEASEHOLD the fence of this name has reached the end of its range')
end
if queued and member then
  redis.pcall('ZREM', queue, member)
end
if queued or not stored then
  -- A client without rights to the queue takes the lock all the same.
  local waiter = redis.pcall('ZRANGE', queue, 0, 0)
  if not waiter.err then
    queued = waiter[1] ~= nil
  end
end
note(queued, fence + more, attempt, token)
redis.call('SET', lock, token, 'PX', ttl)
return string.format('G %.0f', fence)
