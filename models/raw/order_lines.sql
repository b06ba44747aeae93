-- @kind: table
-- @description: data/order_lines.csv as it comes, every value as text.

SELECT * FROM csv.`data/order_lines.csv` WITH ('header' = 'true')
