-- What a guarded server does before a take. While it may have lost data, it grants nothing, lets
-- nobody stand in its queue, and confirms no take, since what it knows of the token's lock may be old.
--
-- A claim is confirmed: it is sent only for a lease that is valid, so nobody else was granted the
-- lock meanwhile, and it is refused where the lock is not the token's any more. It begins the
-- quarantine as a take does, and goes on if that fails.

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

