"""Lower bounds that no plan can beat: relaxations, the deadline test, total work, cost and energy.

`quick_estimate` is not a bound; it estimates the step of a shape, to order the search."""
