-- Gives up a token on a node: its place in the queue, and the lock if it is the token's. Two waiters
-- are told that it is free. Not guarded: a node that lost its data has to forget the token, too.
--
-- Needs    attempt, 0 for any (line.lua, break.lua); lock, side, queue, token and holder (lock.lua,
--          break.lua)
--
-- ARGV[1]  "0 <attempt> <attempt> <token>": a lock that a later attempt was granted stays. With 0,
--          a lock of any attempt is given up
-- ARGV[2]  0 not to tell waiters "F <token> <lock's key>"; else 1, or absent like what follows
-- ARGV[3]  the client's channel; absent where it cannot be in the queue, or stays there
--
-- Replies  1 if the lock was the token's and is free; 0 if it was not, or a later attempt has it;
--          after an error it was not freed
--
-- Safe to send twice: a second copy finds nothing, or somebody else's token. A client without rights
-- to the queue frees the lock all the same.

local mine = holder == token

-- A side key that cannot be read is left alone, and the lock is given all the same.
local stored = redis.pcall('GET', side)
local queued, last, known, owner
if type(stored) == 'string' then
  queued, last, known, owner = string.match(stored, '^([01]) (%d+) (%d+) (%x+)$')
end
if mine and attempt > 0 and owner == token and tonumber(known) > attempt then
  mine = false
end

-- A removal first: a server that is short of memory lets a script write only if it began with one.
if mine then
  redis.call('DEL', lock)
end
if ARGV[3] and queued ~= '0' then
  redis.pcall('ZREM', queue, token .. ' 0 ' .. ARGV[3])
end
if not mine or ARGV[2] == '0' or queued == '0' then
  return mine and 1 or 0
end

-- Two are told, since one may be about to give up. A waiter that does not hear is removed; if it
-- lives, its next poll brings it back.
local MOST, told, anybody = 64, 0, true
for _ = 1, MOST do
  local waiter = redis.pcall('ZRANGE', queue, told, told)
  if waiter.err then
    return 1
  elseif not waiter[1] then
    anybody = told > 0
    break
  end
  local whose, channel = string.match(waiter[1], '^(%x+) %d+ (.+)$')
  local text = 'F ' .. (whose or '') .. ' ' .. lock
  -- Where the node is a Cluster, a channel ends with the tag that puts it into the lock's slot.
  local sharded = channel and string.sub(channel, -1) == '}'
  local heard = channel and redis.pcall(sharded and 'SPUBLISH' or 'PUBLISH', channel, text) or 0
  if type(heard) == 'table' then
    return 1
  elseif heard > 0 then
    told = told + 1
  elseif type(redis.pcall('ZREM', queue, waiter[1])) == 'table' then
    return 1
  end
  if told == 2 then
    break
  end
end
if not anybody and queued then
  redis.pcall('SET', side, string.format('0 %s %s %s', last, known, owner), 'PX', 100800000)
end
return 1
