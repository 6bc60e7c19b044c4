"""The planner: which plan. Stands on `sim`; knows no torch and no files.

Read in this order: request, shapes, stages (the ILP, on milp), placement, verify, strategies, search.
"""
