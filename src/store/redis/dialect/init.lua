-- Declares a server new, so that it grants at once, without the quarantine.
--
-- Needs    all that guard.lua leaves
--
-- ARGV[1]  "1" to end a quarantine too, "0" not to; "look" to write nothing
--
-- Replies  "I"          it may grant, for this client's longest ttl or a longer one
--          "M" and "N"  to "look": it has a marker, or none
--          "Q ..."      its quarantine runs
--          an error: whether it may grant has not changed
--
-- Safe to send twice.

local marker, failed = read_marker()
if failed and ARGV[1] ~= '1' then
  return failed
end
if ARGV[1] == 'look' then
  return marker and 'M' or 'N'
end
if marker and ARGV[1] ~= '1' then
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  if MAX_TTL > marker.longest and (marker.run ~= RUN or marker.over > 0) then
    -- The longest ttl may have been this one before the server came back with an older marker. Then
    -- the quarantine that ran, or begins now, is too short, unless it began long ago.
    local began = marker.run == RUN and marker.over - marker.longest * 1000 or now
    local over = began + MAX_TTL * 1000
    if over > now then
      redis.call('SET', MARKER, string.format('%s %.0f %.0f', RUN, over, MAX_TTL))
      return string.format('Q %.0f %.0f', math.ceil((over - now) / 1000), now)
    end
  end
  -- refusal() must not object to the marker's longest ttl, which is about to change.
  local ours = MAX_TTL
  MAX_TTL = math.min(MAX_TTL, marker.longest)
  local refused = refusal(now)
  if refused then
    return refused
  end
  -- Leases that were granted before may last as long as the marker says, and so must a quarantine:
  -- without force, the longest ttl only becomes longer.
  MAX_TTL = math.max(ours, marker.longest)
end
if not marker or marker.run ~= RUN or marker.over ~= 0 or marker.longest ~= MAX_TTL then
  redis.call('SET', MARKER, string.format('%s 0 %.0f', RUN, MAX_TTL))
end
return 'I'
