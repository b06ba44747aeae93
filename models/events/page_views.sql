-- @kind: events
-- @description: What visitors of the shop look at; the pages send it in.

page STRING NOT NULL,
customer_id STRING,
seconds INT,
received_at TIMESTAMP
