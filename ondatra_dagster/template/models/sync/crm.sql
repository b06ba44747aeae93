-- @kind: merge
-- @unique_key: customer_id
-- @sink: crm_push
-- @schedule: on change
-- @description: Each customer as a contact in the CRM.

SELECT customer_id, name, lower(email) AS email, country
FROM raw.customers
