-- How a lock that is free is handed to the first living waiter. Stands before take.lua and
-- give.lua, which say what their keys and arguments are, and is no script by itself.
--
-- The queue is a sorted set. A member is "<token> <span> <channel>": the token of a waiting client,
-- for how many milliseconds it is granted the lock at first, and where it is told. Its score is its
-- ticket.
--
-- What a client is told  "G <token> <first fence> <fences> <server time in µs> <span> <lock's key>"
--                        "W <token> <server time in µs> <span>": somebody before it has the lock
--                        for this span, and may be dead
--
-- Whoever sets the lock free deletes its key before anything else here, also where it is absent: a
-- server that is short of memory goes on with a script that began with a removal. The side key is
-- written before a client is told, and by then every right has been asked for that is needed after
-- it: nobody is told of a lock that he is not given, and nobody is given one without being told.

-- Tells the first two waiters that hear it that the lock is taken for a span. One would not be
-- enough: it may be about to give up.
local function tell(queue, now, span)
  local MOST = 64
  local told, rank = 0, 0
  repeat
    local members = redis.call('ZRANGE', queue, rank, rank + 1)
    for _, member in ipairs(members) do
      local token, channel = string.match(member, '^(%x+) %d+ (.+)$')
      if token and told < 2 then
        local text = string.format('W %s %.0f %.0f', token, now, span)
        local heard = redis.pcall('PUBLISH', channel, text)
        if type(heard) == 'table' then
          return
        end
        told = told + math.min(heard, 1)
      end
    end
    rank = rank + 2
  until told == 2 or #members < 2 or rank >= MOST
end

-- Hands the lock to the first waiter that hears it, as far as those before `me` go. Returns what
-- came of it, the last fence reserved by then, and whether anybody is left in the queue:
--   "given" and the span   somebody has the lock
--   "none"                 nobody is before me
--   "some"                 all that were tried are gone, and more are left
--   "mute"                 whoever runs this may not look or tell: the queue is as it was
local function hand_over(lock, side, queue, now, last, me)
  local SIDE_TTL, MAX_FENCE = 90000000, 9007199254740991
  -- How many fences a waiter is granted, and how many waiters a script looks at.
  local BLOCK, MOST = 64, 64
  for tried = 0, MOST do
    local head = redis.pcall('ZRANGE', queue, 0, 1, 'WITHSCORES')
    if head.err then
      return 'mute', last, true
    end
    local member, ticket, more = head[1], head[2], head[3] ~= nil
    if not member or member == me then
      return 'none', last, more
    elseif tried == MOST then
      return 'some', last, true
    end
    if type(redis.pcall('ZREM', queue, member)) == 'table' then
      return 'mute', last, true
    end
    local token, span, channel = string.match(member, '^(%x+) (%d+) (.+)$')
    local first = math.max(last + 1, now)
    if token and first <= MAX_FENCE then
      last = math.min(first + BLOCK - 1, MAX_FENCE)
      local noted = string.format(' %.0f %.0f %s', last, first, token)
      redis.call('SET', side, (more and '1' or '0') .. noted, 'PX', SIDE_TTL)
      local block = last - first + 1
      local text = string.format('G %s %.0f %.0f %.0f %s ', token, first, block, now, span)
      local heard = redis.pcall('PUBLISH', channel, text .. lock)
      if type(heard) == 'table' then
        redis.call('ZADD', queue, ticket, member)
        redis.call('SET', side, '1' .. noted, 'PX', SIDE_TTL)
        return 'mute', last, true
      elseif heard > 0 then
        redis.call('SET', lock, token, 'PX', span)
        tell(queue, now, tonumber(span))
        return 'given', last, more, tonumber(span)
      end
    end
  end
end
