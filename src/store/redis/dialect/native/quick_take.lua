-- Takes a lock for a token, or stands in its queue: what it is given and replies, and the everyday
-- case. The rest, with functions that cost a server time to make, is in quick_join.lua, lock.lua,
-- hand_over.lua and take.lua behind this.
--
-- Needs    ARGV as guard.lua leaves it, where the server is guarded
-- Leaves   lock, side, token and ttl, which are keys and arguments; stored: the value of the side key;
--          time: as TIME tells it; call
--
-- ARGV[1]  the token
-- ARGV[2]  the ttl in milliseconds
-- ARGV[3]  "<span> <channel>", the rest of its member in the queue, where it may stand there; else empty
-- ARGV[4]  "try", or "join <ticket>" with the ticket of an earlier poll, or 0
-- ARGV[5]  how many fences; absent for one. A try for one that stands nowhere says no more than two
-- ARGV[6]  how many milliseconds the side key is kept; absent for 28 h
--
-- Replies  "0 <fence>"     the lock is the token's; the fence is the server time in µs
--          "G <first fence> <fences> <server time in µs>"  the same
--          "B <ttl left in ms> <server time> <rank> <ticket> <1 if the holder is of this library,
--             else 0>"     it is not. With no ttl left, others may be before the token: poll again
--          {<ttl left in ms>, <rank>, "<ticket>"}  the same, the ticket being the server time
--          "F <why>"       the key is not a lease
--          an error        the lock is not the token's
--
-- Safe to send twice: a second copy finds the token's lock, whose ttl it never shortens, or its
-- place.

local lock, side, token, ttl = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local call = redis.call

local stored = call('GET', side)
local time = call('TIME')

-- The everyday case: the lock is free, and nobody waits for it. The side key is "0 <last fence>
-- <first fence> <token>", with fences of 16 digits. Its ttl was set with a fence that began with the
-- same six digits: 10,000 s ago at most, unless the clock was set back since.
if (not ARGV[3] or ARGV[3] == '' and ARGV[5] == '1') and stored and #stored == 68 then
  local seconds, micros = time[1], time[2]
  if #micros < 6 then
    micros = string.sub('00000', #micros) .. micros
  end
  local head = '0 ' .. seconds .. micros
  -- What lies between the two texts begins with the shorter one, and has a smaller fence.
  if #head == 18 and stored < head and stored > head:sub(1, 8) then
    -- A server that is short of memory refuses this also where the lock is the token's, or another's.
    local set = redis.pcall('SET', lock, token, 'NX', 'PX', ttl)
    if set and set.ok then
      local noted = seconds .. micros .. ' ' .. seconds .. micros .. ' ' .. token
      -- Costs less than a SET.
      if redis.pcall('SETRANGE', side, '2', noted) == 68 then
        return head
      end
      -- A client without the right to it, or to write the side key at all.
      if redis.pcall('SET', side, '0 ' .. noted, 'KEEPTTL').ok then
        return head
      end
      call('DEL', lock)
      -- Called again, so that the error names this line, and with it the command.
      return call('SET', side, '0 ' .. noted, 'KEEPTTL')
    end
  end
end

