"""Lower bounds that no plan can beat: relaxations, the deadline test, total work, cost and energy.

`quick_estimate` is no bound: it orders shapes by the same closed forms."""
