-- Takes a lock for a token, or confirms that the token has it.
--
-- KEYS[1]  the lock: a string that holds the holder's token, with its ttl
-- KEYS[2]  its side key: "<last fence> <token it was given to>", kept 25 hours
-- ARGV[1]  the token
-- ARGV[2]  the ttl in milliseconds
-- ARGV[3]  "try": take the lock if it is free; "claim": only confirm, never take
--
-- Replies  "G <fence> <server time in µs>"   the lock is the token's
--          "B <ttl left in ms> <server time>" somebody else has it
--          "L"                                claimed, and not the token's
--          "F <why>"                          the key is not a lease
--          an error                           nothing was written
--
-- Safe to send twice: a second copy finds the token's own lock and answers with the same fence. It
-- never shortens the ttl, so that a copy that was delayed cannot cut a later extension. The fence
-- is written before the lock: when the second write fails, a number is skipped and nobody holds.
-- A holder's value and ttl are never touched for another token.

local lock, side = KEYS[1], KEYS[2]
local token, ttl, mode = ARGV[1], ARGV[2], ARGV[3]
local SIDE_TTL = 90000000
local MAX_FENCE = 9007199254740991

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local holder = redis.pcall('GET', lock)
if type(holder) == 'table' then
  if string.find(holder.err, 'WRONGTYPE', 1, true) then
    return 'F it is of another type'
  end
  -- Once more, so that the error tells this line and with it the command.
  return redis.call('GET', lock)
end

if holder and holder ~= token then
  if mode == 'claim' then
    return 'L'
  end
  local left = redis.call('PTTL', lock)
  if left < 0 then
    return 'F it has no ttl'
  end
  return string.format('B %.0f %.0f', left, now)
end

local last, owner = 0, false
local stored = redis.call('GET', side)
if stored then
  local fence, given_to = string.match(stored, '^(%d+) (%x+)$')
  if not fence then
    return redis.error_reply('LEASEHOLD the side key of this name holds something else')
  end
  last, owner = tonumber(fence), given_to
end

if holder then
  if redis.call('PTTL', lock) < tonumber(ttl) then
    redis.call('PEXPIRE', lock, ttl)
  end
  if mode == 'claim' or owner == token then
    redis.call('PEXPIRE', side, SIDE_TTL)
    return string.format('G %.0f %.0f', last, now)
  end
elseif mode == 'claim' then
  return 'L'
end

local fence = math.max(last + 1, now)
if fence > MAX_FENCE then
  return redis.error_reply('LEASEHOLD the fence of this name has reached the end of its range')
end
redis.call('SET', side, string.format('%.0f %s', fence, token), 'PX', SIDE_TTL)
if not holder then
  redis.call('SET', lock, token, 'PX', ttl)
end
return string.format('G %.0f %.0f', fence, now)
