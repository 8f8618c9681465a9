-- Asks the guard, whose "Q ..." and "T ..." are replies of the script then.
--
-- Needs   refusal, and ARGV as guard.lua leaves it
-- Leaves  now, the server time in µs; time, as TIME tells it
--
-- A claim is confirmed whatever the guard says, or fails to say: it is sent only for a lease that is
-- valid, so nobody else was granted the lock meanwhile. It begins the quarantine as a take does.
-- (Other scripts have a number there, or a mode of their own.)

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if ARGV[3] == 'claim' then
  pcall(refusal, now)
else
  local refused = refusal(now)
  if refused then
    return refused
  end
end
