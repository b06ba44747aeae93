-- @kind: table
-- @constraint: quantity > 0
-- @description: Order lines with their order, product and amount.

SELECT
    orders.order_id,
    orders.customer_id,
    orders.status,
    CAST(orders.ordered_on AS DATE) AS ordered_on,
    CAST(orders.shipped_on AS DATE) AS shipped_on,
    CAST(lines.line_no AS INT) AS line_no,
    products.name AS product,
    CAST(lines.quantity AS INT) AS quantity,
    CAST(lines.unit_price AS DECIMAL(10, 2)) AS unit_price,
    CAST(CAST(lines.quantity AS INT) * CAST(lines.unit_price AS DECIMAL(10, 2)) AS DECIMAL(12, 2)) AS amount
FROM raw.orders AS orders
JOIN raw.order_lines AS lines ON lines.order_id = orders.order_id
JOIN raw.products AS products ON products.product_id = lines.product_id
