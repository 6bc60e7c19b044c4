"""Islands: parts of a launch that each execute a plan of their own, and exchange gradients or changes of weights.

Reading order: links (which ranks exchange which parameters), training_values and paced_values (the parameters of a rank),
collectives and reducers (how values of islands become one), outer_updates (what is done with them), outer_loop (when), rank.
"""
