-- Reads what the lock of a name holds. docs/protocol.md describes the keys.
--
-- Leaves  lock, side, queue and token, which are the keys and the argument below
--         holder: what the lock holds; false where it is free, a table where it is of another type
--
-- KEYS[1]  the lock
-- KEYS[2]  its side key
-- KEYS[3]  its queue, where the script is given it; else nil, or the guard's marker
-- ARGV[1]  the token

local lock, side, queue, token = KEYS[1], KEYS[2], KEYS[3], ARGV[1]

local holder = redis.pcall('GET', lock)
if type(holder) == 'table' and not string.find(holder.err, 'WRONGTYPE', 1, true) then
  -- Called again, so that the error names this line, and with it the command.
  return redis.call('GET', lock)
end
