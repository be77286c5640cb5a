"""The error probability of intervals and gates, and quantiles of the normal distribution."""

ALPHA = 0.05
"""Error probability of a two-sided interval, of a one-sided bound, and of a gate, unless a user or
a loop sets another one."""

NORMAL_95 = 1.6448536269514722
"""95 % quantile of the standard normal distribution: for one-sided tests with error 5 %."""
NORMAL_97_5 = 1.959963984540054
"""97.5 % quantile of the standard normal distribution: for two-sided intervals of 95 %."""
NORMAL_99 = 2.3263478740408408
"""99 % quantile of the standard normal distribution: for one-sided tests with error 1 %."""
