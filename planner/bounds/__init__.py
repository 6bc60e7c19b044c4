"""Lower bounds that no plan can beat: relaxations, the deadline test, total work, cost and energy."""
