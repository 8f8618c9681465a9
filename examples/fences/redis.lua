-- Writes a value unless a later holder of the lock was here:
--
--     redis-cli --eval redis.lua '{stock:17}' '{stock:17}:fence' , "$LEASEHOLD_FENCE" 16
--
-- KEYS  the value's, and its fence's: in a Cluster, of one slot, which the braces say
-- ARGV  the fence, and the value
--
-- Answers OK, or an error that begins with LATE, and then nothing is changed. The key of the fence must
-- not expire before a late writer can come.
local last = tonumber(redis.call('GET', KEYS[2]) or '0')
local fence = tonumber(ARGV[1])
if not fence or fence < last then
    return redis.error_reply(string.format('LATE the fence %s is late: %.0f was here', ARGV[1], last))
end
redis.call('SET', KEYS[2], ARGV[1])
return redis.call('SET', KEYS[1], ARGV[2])
