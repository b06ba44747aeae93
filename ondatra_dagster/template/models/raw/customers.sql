-- @kind: table
-- @schedule: on change
-- @description: data/customers.csv unchanged, every value as a string.

SELECT * FROM csv.`data/customers.csv` WITH ('header' = 'true')
