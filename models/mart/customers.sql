-- @kind: table
-- @description: Customers with their orders and total spending, without cancelled orders.

WITH totals AS (
    SELECT
        customer_id,
        count(DISTINCT order_id) AS orders,
        sum(amount) AS spent,
        max(ordered_on) AS last_ordered_on
    FROM staging.order_lines
    WHERE status <> 'cancelled'
    GROUP BY customer_id
)

SELECT
    customers.customer_id,
    customers.name,
    customers.email,
    customers.country,
    coalesce(totals.orders, 0) AS orders,
    CAST(coalesce(totals.spent, 0) AS DECIMAL(12, 2)) AS spent,
    totals.last_ordered_on
FROM staging.customers AS customers
LEFT JOIN totals ON totals.customer_id = customers.customer_id
