-- What a client ($1) says of itself: no row where that is not known, or no more than $2 characters.
SELECT left(record, $2::integer) FROM leasehold.client WHERE id = $1 AND expiry > clock_timestamp()
