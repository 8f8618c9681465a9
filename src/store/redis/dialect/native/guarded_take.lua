-- What a guarded server does before a take, between guard.lua and the rest. While it may have lost
-- data, it grants nothing, and lets nobody stand in its queue. It does not confirm a take either,
-- since what it knows of the token's lock may be older than the lock.
--
-- A claim is confirmed. It is sent only for a lease that is valid, so nobody else was granted the
-- lock meanwhile, by this run or the run before; and take.lua refuses it where the lock is not the
-- token's any more. It begins the quarantine as a take does, and goes on if that fails.

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

