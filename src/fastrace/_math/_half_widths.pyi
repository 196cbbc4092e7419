import numpy as np

empirical_bernstein: np.ufunc
empirical_bernstein_serfling: np.ufunc
hoeffding: np.ufunc
hoeffding_serfling: np.ufunc
log_inv_look_delta: np.ufunc
lower_end: np.ufunc
normal: np.ufunc
normal_tail: np.ufunc
serfling: np.ufunc
serfling_factor: np.ufunc
skewness_inflation: np.ufunc
stream_slack: np.ufunc
tie_width: np.ufunc
upper_end: np.ufunc
variance_factor: np.ufunc
