-- @kind: scd2
-- @unique_key: customer_id
-- @description: The history of each customer: an invoice of last year shows last year's address.

SELECT customer_id, name, email, country
FROM staging.customers
