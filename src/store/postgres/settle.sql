-- In front of what grants behind a pooler, in the same transaction: the session may have been told
-- anything by whoever had it before.
--
-- $1 what commits wait for by the URL, or an empty text
--
-- Answers one row. Where the URL says nothing, commits wait for the disk, and for the standbys that are
-- named, even if the session says otherwise. Warnings are told: one says that a commit stopped waiting.
SELECT set_config('client_min_messages', 'warning', true),
    set_config('synchronous_commit', CASE
        WHEN $1 <> '' THEN $1
        WHEN current_setting('synchronous_commit') IN ('off', 'local') THEN 'on'
        ELSE current_setting('synchronous_commit')
    END, true)
