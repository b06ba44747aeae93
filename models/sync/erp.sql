-- @kind: tracked
-- @group_key: invoice_id
-- @sink: erp_push
-- @description: Each invoice, with all its lines, in the ERP.

SELECT
    invoice_id,
    customer_id,
    issued_on,
    line_no,
    product,
    quantity,
    unit_price
FROM mart.invoice_lines
