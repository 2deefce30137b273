"""The command line `holdfast`: how it is read (`main.py`), what each command does, and what is printed.

Nothing outside this room imports it, but `holdfast/__main__.py`.
"""
