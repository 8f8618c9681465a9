-- Makes PostgreSQL reject a late writer. You may run it again.

-- For a transaction that writes several rows, or tables without a fence: `check_fence` of Python and
-- Java compares here. One row for each name, which stays locked until the transaction ends.
CREATE TABLE IF NOT EXISTS leasehold_fences (
    name   varchar(512) NOT NULL PRIMARY KEY,
    fence  bigint       NOT NULL,
    writes bigint       NOT NULL
);

-- For rows with a column `fence`. An update with a smaller fence than the row has is an error. An update
-- that does not set the fence passes, so set it in every update:
--
--     UPDATE stock SET count = 16, fence = 1763920000000042 WHERE sku = 17;
CREATE OR REPLACE FUNCTION refuse_late_fence() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF COALESCE(NEW.fence, 0) < OLD.fence THEN
        RAISE EXCEPTION 'fence % is late: % was here', NEW.fence, OLD.fence
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END $$;

-- And for each of the tables:
--
--     ALTER TABLE stock ADD COLUMN fence bigint NOT NULL DEFAULT 0;
--     CREATE TRIGGER refuse_late_fence BEFORE UPDATE ON stock
--         FOR EACH ROW EXECUTE FUNCTION refuse_late_fence();
