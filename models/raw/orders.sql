-- @kind: table
-- @description: data/orders.csv as it comes, every value as text.

SELECT * FROM csv.`data/orders.csv` WITH ('header' = 'true')
