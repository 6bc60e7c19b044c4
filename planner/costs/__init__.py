"""What a candidate costs before it is simulated: node classes, mixed stages, and what all of them share."""
