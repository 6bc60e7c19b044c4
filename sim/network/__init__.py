"""How data moves: routes, max-min fair sharing, the costs of collectives and of point-to-point messages."""
