-- Hands a free lock to the first living waiter. In front of take.lua and give.lua, and not
-- reached in their everyday cases.
--
-- Needs   lock, side and queue (lock.lua, quick_give.lua, break.lua)
-- Leaves  hand_over, which is explained below
--
-- A client is told  "G <token> <first fence> <fences> <server time in µs> <span> <lock's key>", or
--                   an empty message: the number of receivers shows whether anybody listens
--
-- The caller deletes the lock's key before anything else here, also where it is absent: a server
-- that is short of memory lets a script write only if it began with a removal. docs/protocol.md
-- says why the rest is in this order.

-- Returns how many received it, or an error. A channel of a Cluster ends with the tag that puts it into
-- the lock's slot: it is heard on the server that has the slot.
local function publish(channel, text)
  return redis.pcall(string.sub(channel, -1) == '}' and 'SPUBLISH' or 'PUBLISH', channel, text)
end

-- Removes dead waiters at the head of the queue, `most` at most, and returns how many.
local function pass_over(me, most)
  local gone = {}
  for _, member in ipairs(redis.pcall('ZRANGE', queue, 0, most - 1)) do
    local channel = string.match(member, '^%x+ %d+ (.+)$')
    if member == me or channel and publish(channel, '') ~= 0 then
      break
    end
    gone[#gone + 1] = member
  end
  if gone[1] then
    redis.call('ZREM', queue, unpack(gone))
  end
  return #gone
end

-- Hands the lock to the first waiter before `me` that hears it; `tried` were tried before. Returns the
-- result, the last fence reserved by then, and whether anybody is left in the queue:
--   "given" and the span   a waiter has the lock
--   "none"                 nobody is before me
--   "some"                 all that were tried are dead, and more are left
--   "refused"              the caller may not read the queue, or may not publish: it is as it was
local function hand_over(now, last, me, tried)
  local SIDE_TTL, MAX_FENCE = 100800000, 9007199254740991
  -- So many dead waiters take the server 8 ms.
  local BLOCK, MOST = 64, 4000
  if type(redis.pcall('GET', lock)) == 'table' then
    -- A Cluster is moving the slot to another server: an absent key cannot be written here, and no
    -- waiter is to be told of a lock that cannot be set.
    return 'refused', last, true
  end
  local noted
  tried = tried or 0
  if tried > 0 then
    tried = tried + pass_over(me, 1000)
  end
  while true do
    local head = redis.pcall('ZRANGE', queue, 0, 1, 'WITHSCORES')
    if head.err then
      return 'refused', last, true
    end
    local member, ticket, more = head[1], head[2], head[3] ~= nil
    if not member or member == me then
      if noted and not more then
        redis.call('SET', side, '0' .. noted, 'PX', SIDE_TTL)
      end
      return 'none', last, more
    elseif tried >= MOST then
      return 'some', last, true
    end
    if type(redis.pcall('ZREM', queue, member)) == 'table' then
      return 'refused', last, true
    end
    local token, span, channel = string.match(member, '^(%x+) (%d+) (.+)$')
    local first = math.max(last + 1, now)
    if token and first <= MAX_FENCE then
      last = math.min(first + BLOCK - 1, MAX_FENCE)
      noted = string.format(' %.0f %.0f %s', last, first, token)
      -- Another may come: a give that finds the queue empty says so.
      redis.call('SET', side, '1' .. noted, 'PX', SIDE_TTL)
      local block = last - first + 1
      local text = string.format('G %s %.0f %.0f %.0f %s ', token, first, block, now, span)
      redis.call('SET', lock, token, 'PX', span)
      local heard = publish(channel, text .. lock)
      if heard ~= 0 and type(heard) ~= 'table' then
        redis.pcall('PEXPIRE', queue, 300000)
        return 'given', last, more, tonumber(span)
      end
      redis.call('DEL', lock)
      if heard ~= 0 then
        redis.call('ZADD', queue, ticket, member)
        redis.call('PEXPIRE', queue, 300000)
        return 'refused', last, true
      end
    end
    tried = tried + 1 + pass_over(me, 1000)
  end
end
