"""What a simulated step says: report, breakdown, explanation, roofline, cost and energy, goodput."""
