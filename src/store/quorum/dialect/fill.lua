-- Stores a lock on a node that lacks it, for a token that has it on a majority without this node, so
-- this is no vote. A node that forgot what it granted is filled only after its quarantine.
--
-- Needs    lock, side, token and holder (lock.lua)
--
-- ARGV[2]  the ttl in milliseconds
-- ARGV[3]  the fence that the token holds the lock under; no attempt of the token has a larger number
-- ARGV[4]  how many fences from this one on may be the token's
--
-- Replies  1 if the lock is the token's; 0 if another has it; after an error it is not the token's
--
-- Safe to send twice. A copy that arrives after the token was given up leaves a lock that nobody
-- holds, for a ttl at most, so the sender gives the token up here again.

if holder then
  return holder == token and 1 or 0
end

-- Where nothing is stored, the queue may have somebody in it.
local stored = redis.call('GET', side) or '1 0 0 0'
local queued, last = string.match(stored, '^([01]) (%d+) %d+ %x+$')
if not queued then
  return redis.error_reply('LEASEHOLD the side key of this name holds something else')
end
-- The fence stands for the attempt, so that a give of an earlier attempt leaves the lock, and a late
-- copy of a take is granted nothing.
last = math.max(tonumber(last), math.min(ARGV[3] + ARGV[4] - 1, 9007199254740991))
redis.call('SET', side, string.format('%s %.0f %.0f %s', queued, last, ARGV[3], token), 'PX', 100800000)
redis.call('SET', lock, token, 'PX', ARGV[2])
return 1
