-- @kind: table
-- @description: data/orders.csv unchanged, every value as a string.

SELECT * FROM csv.`data/orders.csv` WITH ('header' = 'true')
