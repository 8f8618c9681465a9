-- Begins the quarantine of a server that may have lost data. Every client sends it when it connects
-- to a new run, so that the quarantine does not wait until somebody wants a lock. Behind guard.lua.
--
-- Replies  "I" if it may grant, as far as its marker goes; else as guard.lua
--
-- Safe to send twice: a quarantine that has begun goes on.

local time = redis.call('TIME')
return refusal(time[1] * 1000000 + time[2]) or 'I'
