"""What people bring, with the real packages: `make ecosystem` runs these tests in an environment of its own.

`models.py` is a table: a row is a function that makes a model as its user has it, with what the plain path answers, and
`test_models.py` measures each of them on a folder. `data.py` and `test_data.py` do the same for forms of data and the
demo network. In the usual suite, where the packages are absent, all of it is skipped.
"""
