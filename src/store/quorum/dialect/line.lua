-- Separates a token and its attempt, which come in one argument.
--
-- Needs   ARGV as guard.lua leaves it, or a script without a guard is given it
-- Leaves  attempt; ARGV[1] is the token from here on, as lock.lua wants it
--
-- ARGV[1]  "0 <attempt> <attempt> <token>", which the side key reads after an everyday take

local attempt = tonumber(string.match(ARGV[1], '^0 (%d+)'))
ARGV[1] = ARGV[1]:sub(-32)

