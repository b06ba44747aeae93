-- @kind: events
-- @description: Page views of the shop's visitors, sent by the pages.

page STRING NOT NULL,
customer_id STRING,
seconds INT,
received_at TIMESTAMP
