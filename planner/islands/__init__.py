"""Plans of islands (`sim.plan.islands`): which clusters form an island, how the batch is divided, and how islands exchange.

`allowed_sync` reads what a person allows (`--sync`), `partitions` divides the clusters, `node_ranges` the nodes of a cluster
with a thin network, `batches` the batch, `island_plans` plans each island with the planner of a whole fleet, `sync_rows` prices
each sync strategy, `search` puts them together, and `certificate` bounds the result. `budgets` divides required devices and
rent, `row_limits` compares cost and days, `on_changed` moves the plans to a changed fleet, and `fronts` finds those that trade
speed, money and price."""
