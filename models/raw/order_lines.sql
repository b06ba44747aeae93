-- @kind: table
-- @description: data/order_lines.csv unchanged, every value as a string.

SELECT * FROM csv.`data/order_lines.csv` WITH ('header' = 'true')
