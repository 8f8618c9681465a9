-- The everyday case of a take: the lock is free, nobody waits for it, one fence is wanted, the server
-- was declared new and has kept its data since, and the attempt is larger than the last fence and in the
-- same hundred seconds. Everything else is for the guard and take.lua.
--
-- Leaves   nothing: it replies, or has changed nothing
--
-- KEYS[4]  the marker; KEYS[1] to KEYS[3] are those of lock.lua
-- ARGV[1]  and ARGV[2]: the guard's, since it stands in front of guard.lua; ARGV[3] and those that follow
--          are ARGV[1] and those that follow in take.lua
--
-- The first take of these hundred seconds was held against the server's clock (or a raise or a fill
-- brought a fence that other nodes had granted by theirs), and gave the side key its whole ttl. A
-- clock that is slow enough to repeat a fence after that could have repeated the first one's.

do
  local line, stored = ARGV[3], redis.pcall('GET', KEYS[2])
  -- In lines of this length both numbers have 16 digits. What lies between the two texts begins with
  -- the shorter one, and has a smaller fence.
  if #line == 68 and (ARGV[5] or '1') == '1'
    and stored and #stored == 68 and stored < line:sub(1, 18) and stored > line:sub(1, 10)
    and redis.pcall('GET', KEYS[4]) == ARGV[1] .. ' 0 ' .. ARGV[2] then
    local set = redis.pcall('SET', KEYS[1], line:sub(-32), 'NX', 'PX', ARGV[4])
    if set and set.ok then
      -- A SET is for a user without the right to the first, which costs less.
      if redis.pcall('SETRANGE', KEYS[2], '0', line) == 68
        or redis.pcall('SET', KEYS[2], line, 'KEEPTTL').ok then
        return 1
      end
      redis.pcall('DEL', KEYS[1])
    end
  end
end

