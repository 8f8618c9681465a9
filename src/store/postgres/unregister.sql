-- Forgets what a client said of itself ($1). Nobody waits for the disk, nor for the answer.
DELETE FROM leasehold.client WHERE id = $1
RETURNING set_config('synchronous_commit', 'off', true)
