"""Build with `python setup.py build_ext --inplace`.

Cython finds the declarations of an installed wheel by itself; for an editable install name the folder that holds
`fastrace/sources.pxd` in CYTHON_INCLUDE.
"""

import os

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup

extension = Extension("consumer", ["consumer.pyx"], include_dirs=[numpy.get_include()],
                      define_macros=[("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")])
folders = [folder for folder in os.environ.get("CYTHON_INCLUDE", "").split(os.pathsep) if folder]
setup(name="consumer", ext_modules=cythonize([extension], include_path=[".", *folders]))
