-- @kind: table
-- @sink: prices_push
-- @description: data/products.csv unchanged, every value as a string. It is also the ERP's price list.

SELECT * FROM csv.`data/products.csv` WITH ('header' = 'true')
