-- Stores a lock on a node that lacks it, for a token that has it on a majority. Behind guard.lua,
-- which has the last key and the first two arguments: a node that forgot what it granted is filled
-- only after its quarantine.
--
-- KEYS[1]  the lock
-- KEYS[2]  its side key, "<0 or 1> <last fence> <attempt of the last grant> <token it was for>"
-- ARGV[1]  the token
-- ARGV[2]  the ttl in milliseconds
-- ARGV[3]  the fence that the token holds the lock under; no attempt of the token has a larger number
--
-- Replies  1  the lock is the token's
--          0  another has it
--          "Q ..." and "T ..."  guard.lua says what they mean
--          an error: the node does not have the lock for the token
--
-- This is no vote: the sender has a majority without this node. The node grants only larger fences
-- from now on, as the nodes that voted do; a last fence that is larger already stays.
--
-- Safe to send twice. A copy that arrives after the token was given up leaves a lock that nobody
-- holds, for a ttl at most, so the sender gives the token up here again.

local lock, side = KEYS[1], KEYS[2]
local token, ttl, fence = ARGV[1], ARGV[2], tonumber(ARGV[3])

local time = redis.call('TIME')
local refused = refusal(time[1] * 1000000 + time[2])
if refused then
  return refused
end

local holder = redis.pcall('GET', lock)
if type(holder) == 'table' and not string.find(holder.err, 'WRONGTYPE', 1, true) then
  -- Called again, so that the error names this line, and with it the command.
  return redis.call('GET', lock)
end
if holder then
  return holder == token and 1 or 0
end

-- Where nothing is stored, the queue may have somebody in it.
local stored = redis.call('GET', side) or '1 0 0 0'
local queued, last = string.match(stored, '^([01]) (%d+) %d+ %x+$')
if not queued then
  return redis.error_reply('LEASEHOLD the side key of this name holds something else')
end
-- How many fences the holder will use is not known here: no block is longer than this. The fence
-- stands for the attempt, so that a give of an earlier attempt leaves the lock, and a late copy of a
-- take is granted nothing.
last = math.max(tonumber(last), math.min(fence + 1023, 9007199254740991))
redis.call('SET', side, string.format('%s %.0f %.0f %s', queued, last, fence, token), 'PX', 90000000)
redis.call('SET', lock, token, 'PX', ttl)
return 1
