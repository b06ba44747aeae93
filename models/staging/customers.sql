-- @kind: table
-- @description: Customers with typed columns, and names and addresses in one form.

SELECT
    customer_id,
    first_name || ' ' || last_name AS name,
    lower(trim(email)) AS email,
    upper(country) AS country,
    CAST(signed_up_on AS DATE) AS signed_up_on
FROM raw.customers
