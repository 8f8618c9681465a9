-- Gives up a lock that is the token's. Answers a row if it was, under that fence.
WHERE l.name = $1 AND l.token = $2 AND l.expiry > clock_timestamp()
    AND ($3 = 0 OR $3 BETWEEN l.first AND l.last)
