"""The closed form of a step on an idle network, for one plan and for many candidates at once."""
