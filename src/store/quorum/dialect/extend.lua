-- Sets the ttl of a lock that is the token's on a node, or passes it on to another token. It counts
-- only where the node forgot nothing.
--
-- Needs    lock, side, token and holder (lock.lua)
--
-- ARGV[2]  the ttl in milliseconds
-- ARGV[3]  "grow": never make the ttl shorter; "refresh": the same, and keep the side key too;
--          "set": make it just this; "pass": as "grow", and the lock becomes the other token's, or is
-- ARGV[4]  the fence, for a side key that was lost
-- ARGV[5]  only to pass it: the other token
--
-- Replies  1 if the lock is the token's, or the other token's by now, for this ttl or longer; 0 if
--          it is not; after an error nothing was changed that anybody relies on
--
-- Safe to send twice and to arrive late, as native/extend.lua.

local ttl, mode = ARGV[2], ARGV[3]

if mode == 'pass' and holder == token then
  local stored = redis.call('GET', side)
  local queued, last, owner = '1', 0, '0'
  if stored then
    queued, last, owner = string.match(stored, '^([01]) (%d+) %d+ (%x+)$')
    if not queued then
      return redis.error_reply('LEASEHOLD the side key of this name holds something else')
    end
    if owner ~= '0' and owner ~= token and owner ~= ARGV[5] then
      return 0
    end
  end
  -- Attempt 0, here and below, so that a give of any attempt frees it.
  last = math.max(tonumber(last), tonumber(ARGV[4]))
  redis.call('SET', side, string.format('%s %.0f 0 %s', queued, last, ARGV[5]), 'PX', 100800000)
  redis.call('SET', lock, ARGV[5], 'KEEPTTL')
elseif holder ~= (mode == 'pass' and ARGV[5] or token) then
  return 0
end

if mode == 'refresh' and redis.call('PEXPIRE', side, 100800000) == 0 then
  -- The queue may have somebody in it, and no block is longer than this.
  local last = math.min(tonumber(ARGV[4]) + 1023, 9007199254740991)
  redis.call('SET', side, string.format('1 %.0f 0 %s', last, token), 'PX', 100800000)
end
if mode == 'set' or redis.call('PTTL', lock) < tonumber(ttl) then
  redis.call('PEXPIRE', lock, ttl)
end
return 1
