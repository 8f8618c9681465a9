-- Gives up a token: its place in the queue, and the lock if it is the token's, for the first
-- living waiter. This is what it is given and replies, and the everyday case; the rest is in
-- quick_hand_over.lua, hand_over.lua and give.lua behind this.
--
-- Needs    ARGV as guard.lua leaves it, where the server is guarded
-- Leaves   lock, side and queue: the keys; token; holder and stored: the values of lock and side key, a
--          table where they cannot be read; time: not told yet, nil; tried: 0 waiters
--
-- ARGV[1]  "0 <fence> <fence> <token>", which the side key reads in the everyday case: the last fence
--          that was used under the token, or 0 where none was
-- ARGV[2]  "<span> <channel>", the rest of its member in the queue. Absent where it cannot be there
--
-- Replies  1  the lock was the token's and is free or another's now
--          0  it was not
--          2 or 3: as 0 or 1, and the lock is free, but more dead waiters are left than one script
--             removes. Send the same give again
--          an error: the lock may be free all the same
--
-- Safe to send twice: a second copy finds nothing, or somebody else's token; a free lock it hands
-- over as any other give. A lock with the token and other fences was taken by a take that arrived
-- late, and nobody knows of it: it is freed, and answered with 0.

local lock, side = KEYS[1], KEYS[2]
local holder = redis.pcall('GET', lock)
local stored = redis.pcall('GET', side)
local token = ARGV[1]:sub(-32)

-- The everyday case: one fence was reserved and used, and nobody waits.
if stored == ARGV[1] and holder == token then
  redis.call('DEL', lock)
  return 1
end

if type(holder) == 'table' and not string.find(holder.err, 'WRONGTYPE', 1, true) then
  -- Called again, so that the error names this line, and with it the command.
  return redis.call('GET', lock)
end
local queue, time, tried = KEYS[3], nil, 0

