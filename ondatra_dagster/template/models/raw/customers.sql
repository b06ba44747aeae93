-- @kind: table
-- @schedule: on change
-- @description: data/customers.csv as it comes, every value as text.

SELECT * FROM csv.`data/customers.csv` WITH ('header' = 'true')
