-- @kind: merge
-- @unique_key: customer_id
-- @sink: crm_push
-- @description: Each customer as a contact in the CRM.
-- @column: orders = the number of orders, without cancelled ones
-- @column: spent = the total amount of these orders
-- @column: last_ordered_on = null for customers without orders

SELECT
    customer_id,
    name,
    email,
    country,
    orders,
    spent,
    last_ordered_on
FROM mart.customers
