"""One module a command: its docstring is its help, ``add_arguments`` its options, ``run`` does it and returns the exit code."""
