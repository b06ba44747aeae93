-- @kind: table
-- @description: Invoices, one row a line: an order is invoiced when it ships.

SELECT
    'INV-' || order_id AS invoice_id,
    customer_id,
    shipped_on AS issued_on,
    line_no,
    product,
    quantity,
    unit_price,
    amount
FROM staging.order_lines
WHERE status = 'shipped'
