-- What changes in a give on a guarded server. While it may have lost data, or its marker cannot be
-- read, the lock is set free and handed to nobody, though an old file may have brought a queue back: the
-- waiters see that it is free, ask, and are told why.
--
-- Needs   may_grant and read_marker (guard.lua), hand_over (hand_over.lua)
-- Leaves  hand_over: the same one, or another that hands the lock to nobody

do
  local time = redis.call('TIME')
  if not may_grant(read_marker(), time[1] * 1000000 + time[2]) then
    hand_over = function(_, last)
      return 'refused', last, true
    end
  end
end
