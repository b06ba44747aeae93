-- @kind: merge
-- @unique_key: customer_id
-- @sink: crm_push
-- @description: Each customer as a contact in the CRM.
-- @column: orders = how many, without the cancelled ones
-- @column: spent = on all of them
-- @column: last_ordered_on = null for who never ordered

SELECT
    customer_id,
    name,
    email,
    country,
    orders,
    spent,
    last_ordered_on
FROM mart.customers
