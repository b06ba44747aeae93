-- @kind: table
-- @description: data/products.csv as it comes, every value as text.

SELECT * FROM csv.`data/products.csv` WITH ('header' = 'true')
