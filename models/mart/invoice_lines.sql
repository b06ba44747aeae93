-- @kind: table
-- @description: Invoices, one row per line. An order is invoiced when it is shipped.

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
