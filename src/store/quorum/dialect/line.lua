-- In front of lock.lua, where a token and its attempt come in one argument.
--
-- ARGV[1]  "0 <attempt> <attempt> <token>", which the side key reads after an everyday take

local attempt = tonumber(string.match(ARGV[1], '^0 (%d+)'))
ARGV[1] = ARGV[1]:sub(-32)

