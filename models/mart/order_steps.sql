-- @kind: append
-- @sink: timeline_push
-- @description: Every status of each order; raw.orders has only the newest.

SELECT order_id, customer_id, status
FROM raw.orders
