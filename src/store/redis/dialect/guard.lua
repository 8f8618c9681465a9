-- Decides whether a server may grant, as docs/protocol.md says under "Lost data". Stands in front of
-- the scripts that ask.
--
-- Leaves  refusal, read_marker and may_grant, which the functions below explain; MARKER, RUN, MAX_TTL;
--         ARGV without the two arguments that are the guard's
--
-- KEYS[last]  the marker, which has no ttl
-- ARGV[1]     the run id of the server at the other end of this connection, 40 hex digits
-- ARGV[2]     the longest ttl that this client allows, in milliseconds
--
-- Replies  "Q <ms left> <server time in µs>"  in quarantine; the marker is written
--          "T <longest ttl in ms>"            the marker's, and less than this client's

local MARKER, RUN, MAX_TTL = KEYS[#KEYS], ARGV[1], tonumber(ARGV[2])
local ARGV = { unpack(ARGV, 3) }

-- What the marker says; nil where there is none, and nil and an error where it cannot be read.
local function read_marker()
  local noted = redis.pcall('GET', MARKER)
  if not noted then
    return nil
  elseif type(noted) == 'table' and not string.find(noted.err, 'WRONGTYPE', 1, true) then
    return nil, noted
  end
  local run, over, longest
  if type(noted) == 'string' then
    run, over, longest = string.match(noted, '^(%x+) (%d+) (%d+)$')
  end
  if not run then
    return nil, redis.error_reply('LEASEHOLD the marker of this server holds something else')
  end
  return { run = run, over = tonumber(over), longest = tonumber(longest) }
end

local function may_grant(marker, now)
  return marker and marker.run == RUN and marker.over <= now
end

-- The reply instead of a grant; nil where the server may grant.
local function refusal(now)
  local marker, failed = read_marker()
  if failed then
    if not string.find(failed.err, 'LEASEHOLD', 1, true) then
      -- Called again, so that the error names this line, and with it the command.
      redis.call('GET', MARKER)
    end
    return failed
  end
  -- A clock that went back makes no quarantine longer than the longest ttl.
  if not marker or marker.run ~= RUN or marker.over > now + marker.longest * 1000 then
    local longest = marker and marker.longest or MAX_TTL
    marker = { run = RUN, over = now + longest * 1000, longest = longest }
    redis.call('SET', MARKER, string.format('%s %.0f %.0f', RUN, marker.over, longest))
  end
  if MAX_TTL > marker.longest then
    return string.format('T %.0f', marker.longest)
  elseif not may_grant(marker, now) then
    return string.format('Q %.0f %.0f', math.ceil((marker.over - now) / 1000), now)
  end
end
