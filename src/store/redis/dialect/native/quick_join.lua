-- Stands a token in the queue in the case of those who come while others wait: the lock is another's,
-- as the side key says, and the token joins anew.
--
-- Needs    all that quick_take.lua leaves
-- Leaves   queue: the key

local queue = KEYS[3]
if ARGV[4] == 'join 0' and stored and #stored == 68 and stored > '1 ' then
  local holder = redis.pcall('GET', lock)
  if holder ~= token and holder == stored:sub(-32) then
    local seconds, micros, left = time[1], time[2], call('PTTL', lock)
    if #micros < 6 then
      micros = string.sub('00000', #micros) .. micros
    end
    local ticket, member = seconds .. micros, token .. ' ' .. ARGV[3]
    local newest = call('ZRANGE', queue, '-1', '-1', 'WITHSCORES')[2]
    -- Else it stands there already, or the clock has gone back.
    local is_last = not newest or #newest == #ticket and newest < ticket
    if left >= 0 and is_last and call('ZADD', queue, 'NX', ticket, member) == 1 then
      -- The first join or hand-over of 100 s prolongs the queue.
      if not newest or stored < '1 ' .. seconds:sub(1, 8) then
        call('PEXPIRE', queue, '300000')
      end
      return { left, call('ZRANK', queue, member), ticket }
    end
  end
end

