-- @kind: merge
-- @unique_key: customer_id
-- @sink: crm_push
-- @description: Each customer as a contact in the CRM.

SELECT
    customer_id,
    name,
    email,
    country,
    orders,
    spent,
    last_ordered_on
FROM mart.customers
