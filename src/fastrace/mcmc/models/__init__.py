"""Models that kernels sample from: log-likelihoods over rows, and what is known of their derivatives."""
