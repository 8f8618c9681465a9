-- Writes a value unless a later holder of the lock has already written:
--
--     redis-cli --eval redis.lua '{stock:17}' '{stock:17}:fence' , "$LEASEHOLD_FENCE" 16
--
-- KEYS  that of the value, and that of its fence. In a Cluster both need the same slot: hence the braces
-- ARGV  the fence, and the value
--
-- Answers OK, or an error that begins with LATE, and then nothing is changed. The key of the fence must
-- neither expire, be evicted nor be deleted before a late writer can come.
local noted = redis.call('GET', KEYS[2]) or '0'
local fence, last = tonumber(ARGV[1]), tonumber(noted)
-- No comparison is true of `nan`, which is a number to Lua, as `inf` and 0x10 are.
if not (string.find(ARGV[1], '^%d+$') and fence < 2 ^ 53 and last and fence >= last) then
    return redis.error_reply(string.format('LATE the fence %s is late: %s was here', ARGV[1], noted))
end
redis.call('SET', KEYS[2], ARGV[1])
return redis.call('SET', KEYS[1], ARGV[2])
