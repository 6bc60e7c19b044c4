"""The planner: chooses a parallel layout and its placement for a request. It uses `sim`, and neither torch nor files.

`docs/architecture.md` describes the rooms and how a request passes through them; `planner.search` describes the search.
"""
