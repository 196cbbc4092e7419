"""How rewards come in from Python, for `RunningMoments` and the rules on streams."""

cimport numpy as cnp


# A number as a double, and no guessing: no strings, no complex numbers, no arrays of one.
cdef double real_number(object x, str name) except? -1.0

# An array of shape (rows,) or (rows, n_arms) of real numbers, or an error that names `xs`.
cdef cnp.ndarray reward_table(object xs, Py_ssize_t n_arms, bint flat)
