-- Reads who has a lock (KEYS[1], with its side key KEYS[2]) and who stands in its queue (KEYS[3]), the
-- first of them, without changing anything.
--
-- ARGV[1]  how many waiters are wanted
--
-- Replies  {holder's value or nil, ttl left in ms, side key's value or nil, the server's time in µs,
--          how many wait, {member, ticket, member, ticket, ...}}, or an error

local holder = redis.call('GET', KEYS[1])
local left = redis.call('PTTL', KEYS[1])
local side = redis.call('GET', KEYS[2])
local time = redis.call('TIME')

-- A queue that may not be read, or is none, hides nothing else.
local first = redis.pcall('ZRANGE', KEYS[3], '0', ARGV[1] - 1, 'WITHSCORES')
if first.err then
  first = {}
end
local count = redis.pcall('ZCARD', KEYS[3])
if type(count) == 'table' then
  count = #first / 2
end
return { holder, left, side, string.format('%.0f', time[1] * 1000000 + time[2]), count, first }
