-- What a guarded server does before a take, between guard.lua and the rest: while it may have lost
-- data, nobody is granted anything there, nobody stands in its queue, and nothing is confirmed, since
-- what it knows of the token's lock may be older than the lock.

do
  local time = redis.call('TIME')
  local refused = refusal(time[1] * 1000000 + time[2])
  if refused then
    return refused
  end
end

