-- @kind: partition
-- @partitioned_by: ordered_on
-- @description: Sales per day and product. Only days that changed are written.

SELECT
    ordered_on,
    product,
    sum(quantity) AS quantity,
    sum(amount) AS amount
FROM staging.order_lines
WHERE status <> 'cancelled'
GROUP BY ordered_on, product
