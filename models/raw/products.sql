-- @kind: table
-- @sink: prices_push
-- @description: data/products.csv as it comes, every value as text; it is the ERP's price list, too.

SELECT * FROM csv.`data/products.csv` WITH ('header' = 'true')
