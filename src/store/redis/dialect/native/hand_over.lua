-- How a lock that is free is handed to the first living waiter. Stands before take.lua and
-- give.lua, which say what their keys and arguments are, and is no script by itself.
--
-- The queue is a sorted set. A member is "<token> <span> <channel>": the token of a waiting client,
-- for how many milliseconds it is granted the lock at first, and where it is told. Its score is its
-- ticket.
--
-- What a client is told  "G <token> <first fence> <fences> <server time in µs> <span> <lock's key>"
--                        an empty message, which says nothing: the number of receivers shows
--                        whether anybody listens
--
-- Nobody else is told: those behind look at the lock by themselves, and ask when they find it free.
--
-- Whoever sets the lock free deletes its key before anything else here, also where it is absent: a
-- server that is short of memory goes on with a script that began with a removal. The side key is
-- written before a client is told, and by then every right has been asked for that is needed after
-- it: nobody is told of a lock that he is not given, and nobody is given one without being told.

-- Returns how many heard it, or an error. A channel of a Cluster ends with the tag that puts it into
-- the lock's slot: it is heard on the server that has the slot.
local function publish(channel, text)
  return redis.pcall(string.sub(channel, -1) == '}' and 'SPUBLISH' or 'PUBLISH', channel, text)
end

-- Removes those at the head of the queue that nobody hears, so many at most, and returns how many.
-- Mostly a whole host has gone, or a process with many clients: so each costs one command.
local function pass_over(queue, me, most)
  local gone = {}
  for _, member in ipairs(redis.call('ZRANGE', queue, 0, most - 1)) do
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

-- Hands the lock to the first waiter that hears it, as far as those before `me` go. Returns what
-- came of it, the last fence reserved by then, and whether anybody is left in the queue:
--   "given" and the span   somebody has the lock
--   "none"                 nobody is before me
--   "some"                 all that were tried are gone, and more are left
--   "mute"                 whoever runs this may not look or tell: the queue is as it was
local function hand_over(lock, side, queue, now, last, me)
  local SIDE_TTL, MAX_FENCE = 90000000, 9007199254740991
  -- How many fences a waiter is granted, and how many of those that are gone a script removes at the
  -- most, which takes the server 8 ms.
  local BLOCK, MOST = 64, 4000
  if type(redis.pcall('GET', lock)) == 'table' then
    -- A Cluster is moving the slot to another server: what is absent here cannot be written here,
    -- and nobody is to be told of a lock that cannot be given to him.
    return 'mute', last, true
  end
  local tried, noted = 0, nil
  while true do
    local head = redis.pcall('ZRANGE', queue, 0, 1, 'WITHSCORES')
    if head.err then
      return 'mute', last, true
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
      return 'mute', last, true
    end
    local token, span, channel = string.match(member, '^(%x+) (%d+) (.+)$')
    local first = math.max(last + 1, now)
    if token and first <= MAX_FENCE then
      last = math.min(first + BLOCK - 1, MAX_FENCE)
      noted = string.format(' %.0f %.0f %s', last, first, token)
      redis.call('SET', side, (more and '1' or '0') .. noted, 'PX', SIDE_TTL)
      local block = last - first + 1
      local text = string.format('G %s %.0f %.0f %.0f %s ', token, first, block, now, span)
      local heard = publish(channel, text .. lock)
      if type(heard) == 'table' then
        redis.call('ZADD', queue, ticket, member)
        redis.call('SET', side, '1' .. noted, 'PX', SIDE_TTL)
        return 'mute', last, true
      elseif heard > 0 then
        redis.call('SET', lock, token, 'PX', span)
        return 'given', last, more, tonumber(span)
      end
    end
    tried = tried + 1 + pass_over(queue, me, 1000)
  end
end
