-- What changes in a give on a guarded server, between hand_over.lua and give.lua: while it may have
-- lost data, the lock is set free and handed to nobody, though an old file may have brought a queue
-- back. Those in it see that it is free, and are told the rest when they ask. A marker that
-- cannot be read says no more than that, and keeps nobody from giving.

do
  local time = redis.call('TIME')
  local marker = read_marker()
  if not may_grant(marker, time[1] * 1000000 + time[2]) then
    hand_over = function(_, _, _, _, last)
      return 'mute', last, true
    end
  end
end

