"""How plans are found: candidates, their improvement, mixed stages, and the plan that fits memory."""
