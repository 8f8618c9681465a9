-- Makes SQLite reject a late writer.

-- For a transaction that writes several rows, or tables without a fence: `check_fence` of Python and
-- Java compares here. One row for each name.
CREATE TABLE IF NOT EXISTS leasehold_fences (
    name   TEXT    NOT NULL PRIMARY KEY,
    fence  INTEGER NOT NULL,
    writes INTEGER NOT NULL
);

-- For rows with a column `fence`. An update with a smaller fence than the row has is an error. An update
-- that does not set the fence passes, so set it in every update:
--
--     UPDATE stock SET count = 16, fence = 1763920000000042 WHERE sku = 17;
--
-- For each of the tables:
--
--     ALTER TABLE stock ADD COLUMN fence INTEGER NOT NULL DEFAULT 0;
--     CREATE TRIGGER refuse_late_fence_of_stock BEFORE UPDATE ON stock
--     WHEN typeof(NEW.fence) <> 'integer' OR NEW.fence < OLD.fence
--     BEGIN SELECT RAISE(ABORT, 'the fence is late'); END;
