-- Gives up a token: its place in the queue, and the lock if it is the token's, for the first
-- living waiter. This is what it is given and replies, and the everyday case, behind lock.lua; the
-- rest is in hand_over.lua and give.lua behind this.
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

