-- @kind: append
-- @sink: timeline_push
-- @description: Each status that an order has had, as it came: raw.orders knows only the newest.

SELECT order_id, customer_id, status
FROM raw.orders
