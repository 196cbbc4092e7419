import numpy as np

BOUNDS: tuple[str, ...]
RIGOROUS: tuple[str, ...]
INVERTED: tuple[str, ...]
empirical_bernstein: np.ufunc
half_width: np.ufunc
hoeffding: np.ufunc
log_inv_look_delta: np.ufunc
lower_end: np.ufunc
normal_tail: np.ufunc
serfling_factor: np.ufunc
skewness_inflation: np.ufunc
stream_slack: np.ufunc
tie_width: np.ufunc
upper_end: np.ufunc
variance_factor: np.ufunc
