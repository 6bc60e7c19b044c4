"""Attention and experts on two sets of ranks: zebra parallelism (HeterMoE, Wu et al., arXiv 2504.03871)."""
