import numpy as np

empirical_bernstein: np.ufunc
empirical_bernstein_serfling: np.ufunc
hoeffding: np.ufunc
hoeffding_serfling: np.ufunc
log_inv_look_delta: np.ufunc
normal: np.ufunc
normal_tail: np.ufunc
serfling: np.ufunc
serfling_factor: np.ufunc
skewness_inflation: np.ufunc
variance_factor: np.ufunc
