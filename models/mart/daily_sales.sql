-- @kind: partition
-- @partitioned_by: ordered_on
-- @description: What was sold each day, by product: only the days that differ are written anew.

SELECT
    ordered_on,
    product,
    sum(quantity) AS quantity,
    sum(amount) AS amount
FROM staging.order_lines
WHERE status <> 'cancelled'
GROUP BY ordered_on, product
