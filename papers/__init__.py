"""Experiments that reproduce the papers behind fastrace: one folder for each paper. Run them from the folder above.

`datasets` loads data sets, and `common` holds what the scripts share. Nothing here is part of the installed package.
"""
