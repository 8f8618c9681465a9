-- Gives up a token: frees the lock if it is the token's.
--
-- KEYS[1]  the lock
-- KEYS[2]  its side key, "<last fence> <token it was given to>"
-- ARGV[1]  the token
-- ARGV[2]  the fence that was used under it, or 0 where none was
--
-- Replies  1  the lock was the token's and is free now
--          0  it was not
--          an error: nothing was changed
--
-- Safe to send twice: a second copy finds nothing, or somebody else's token. A lock that has the
-- token and another fence was taken by a take that arrived late, after the turn that used this
-- fence was over: it is freed, since nobody knows of it, and answered with 0.

local lock, side = KEYS[1], KEYS[2]
local token, fence = ARGV[1], ARGV[2]

local holder = redis.pcall('GET', lock)
if type(holder) == 'table' and not string.find(holder.err, 'WRONGTYPE', 1, true) then
  -- Once more, so that the error tells this line and with it the command.
  return redis.call('GET', lock)
end
if holder ~= token then
  return 0
end

local stored = fence ~= '0' and redis.pcall('GET', side)
redis.call('DEL', lock)
if type(stored) == 'string' then
  local last, owner = string.match(stored, '^(%d+) (%x+)$')
  if owner == token and last ~= fence then
    return 0
  end
end
return 1
