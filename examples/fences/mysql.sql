-- Makes MySQL and MariaDB reject a late writer.

-- For a transaction that writes several rows, or tables without a fence: `check_fence` of Python and
-- Java compares here. One row for each name, which stays locked until the transaction ends.
CREATE TABLE IF NOT EXISTS leasehold_fences (
    name   varchar(512) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
    fence  bigint       NOT NULL,
    writes bigint       NOT NULL
) ENGINE = InnoDB;

-- For rows with a column `fence`. An update with a smaller fence than the row has is an error. An update
-- that does not set the fence passes, so set it in every update:
--
--     UPDATE stock SET count = 16, fence = 1763920000000042 WHERE sku = 17;
--
-- For each of the tables:
--
--     ALTER TABLE stock ADD COLUMN fence bigint NOT NULL DEFAULT 0;
--     DELIMITER //
--     CREATE TRIGGER refuse_late_fence_of_stock BEFORE UPDATE ON stock FOR EACH ROW
--     BEGIN
--         IF COALESCE(NEW.fence, 0) < OLD.fence THEN
--             SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the fence is late';
--         END IF;
--     END //
--     DELIMITER ;
