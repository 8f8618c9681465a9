-- What changes in a give on a guarded server, between hand_over.lua and give.lua. While the server may
-- have lost data, the lock is set free and handed to nobody, though an old file may have brought a
-- queue back. The waiters see that the lock is free, ask, and are told of the quarantine then. A
-- marker that cannot be read counts as a quarantine, and keeps nobody from giving.

do
  local time = redis.call('TIME')
  local marker = read_marker()
  if not may_grant(marker, time[1] * 1000000 + time[2]) then
    hand_over = function(_, _, _, _, last)
      return 'refused', last, true
    end
  end
end

