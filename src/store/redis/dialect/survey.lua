-- Reads a lock (KEYS[1]), its side key (KEYS[2]) and how long its queue (KEYS[3]) is, and changes
-- nothing. A key that is no lock keeps its value to itself.
--
-- Replies  {the holder's token, empty where the key holds something else, or nil where there is none,
--           ttl left in ms, the side key's value or nil, how many stand in the queue or -1, the server's
--           time in µs}
--
-- Safe to send twice, like all that only reads.

-- What is too long is none of ours either.
local function text(key)
  local value = redis.pcall('GET', key)
  return type(value) == 'string' and #value < 100 and value or value and ''
end

local time = redis.call('TIME')
local holder, waiting = text(KEYS[1]), redis.pcall('ZCARD', KEYS[3])
if holder and #holder ~= 32 then
  holder = ''
end
return {
  holder, redis.call('PTTL', KEYS[1]), text(KEYS[2]), type(waiting) == 'number' and waiting or -1,
  string.format('%.0f', time[1] * 1000000 + time[2])
}
