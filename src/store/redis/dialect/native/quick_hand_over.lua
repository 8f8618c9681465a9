-- Hands a lock over in the usual case: it is the token's, under one of its fences, and the first in the
-- queue hears of it. What does not succeed here is undone, and left to hand_over.lua and give.lua.
-- docs/protocol.md says why this is in this order.
--
-- Needs   all that quick_give.lua leaves
-- Leaves  the same: stored as it was written since, time where it was asked, how many waiters were tried

local is_ours = holder == token and type(stored) == 'string' and #stored == 68 and #ARGV[1] == 68
-- The first of its fences, or a later one.
if is_ours and stored > '1 ' and stored:sub(20) ~= ARGV[1]:sub(20) then
  local used = ARGV[1]:sub(3, 18)
  is_ours = stored > '1 ' .. used and stored:sub(20, 35) <= used and stored:sub(-32) == token
end
if is_ours and stored > '1 ' then
  time = redis.call('TIME')
  local seconds, micros = time[1], time[2]
  if #micros < 6 then
    micros = string.sub('00000', #micros) .. micros
  end
  local first = seconds .. micros
  local head = #first == 16 and '0 ' .. first > ARGV[1] and redis.pcall('ZPOPMIN', queue)
  local member = head and head[1]
  local at = member and member:find(' ', 34, true)
  if at then
    local to, span, channel = member:sub(1, 32), member:sub(34, at - 1), member:sub(at + 1)
    local last = micros + 63
    if last < 1000000 then
      last = seconds .. string.format('%06d', last)
    else
      last = string.format('%.0f', seconds * 1000000 + last)
    end
    local noted, is_noted = last .. ' ' .. first .. ' ' .. to, false
    -- The first hand-over of 100 s prolongs the keys.
    if stored > '1 ' .. seconds:sub(1, 8) then
      is_noted = redis.pcall('SETRANGE', side, '2', noted) == 68
    end
    if not is_noted then
      is_noted = redis.pcall('SET', side, '1 ' .. noted, 'PX', '100800000').ok
      redis.pcall('PEXPIRE', queue, '300000')
    end
    stored = is_noted and '1 ' .. noted or stored
    local heard
    if is_noted and redis.pcall('SET', lock, to, 'PX', span).ok then
      local text = 'G ' .. to .. ' ' .. first .. ' 64 ' .. first .. ' ' .. span .. ' ' .. lock
      heard = redis.pcall(channel:byte(-1) == 125 and 'SPUBLISH' or 'PUBLISH', channel, text)
    end
    if type(heard) ~= 'number' then
      redis.pcall('ZADD', queue, head[2], member)
      redis.pcall('PEXPIRE', queue, '300000')
    elseif heard > 0 then
      return 1
    else
      tried = 1
    end
  end
end

