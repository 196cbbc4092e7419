"""Searches in the manner of scikit-learn; importing this package needs scikit-learn."""
