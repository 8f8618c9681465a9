-- Begins the quarantine of a server that may have lost data. Every client sends it when it connects
-- to a new run of the server, so that the quarantine does not wait until somebody wants a lock. Behind
-- guard.lua, which has the key and the arguments.
--
-- Replies  "I"                 it may grant, as far as its marker goes
--          "Q ..." and "T ..."  guard.lua says what they mean
--          an error: whether it may grant has not changed
--
-- Safe to send twice: a quarantine that has begun goes on.

local time = redis.call('TIME')
return refusal(time[1] * 1000000 + time[2]) or 'I'
