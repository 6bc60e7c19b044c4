"""Mathematical programmes and the solver behind them."""
