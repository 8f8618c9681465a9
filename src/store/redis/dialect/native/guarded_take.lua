-- What a guarded server does before a take, between guard.lua and the rest: while it may have lost
-- data, nobody is granted anything there, and nobody stands in its queue. Nor is a take confirmed,
-- since what it knows of the token's lock may be older than the lock.
--
-- A claim is: it is only sent for a lease that is valid, so that nobody else was granted the lock
-- meanwhile, here or by the run before; and where the lock is not the token's any more, take.lua says
-- so. It begins the quarantine as a take does, and what is in the way of that is not in its own.

do
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
end

