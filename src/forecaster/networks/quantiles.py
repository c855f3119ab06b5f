"""The quantiles that every forecast gives: here without torch, which scores and baselines can do without."""

QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
MEDIAN = QUANTILES.index(0.5)
