"""Many models by many targets: isolated jobs, results in a fixed order, one summary.

``jobsfile``  what a user writes
``outside``   options that do not stand in it: they win over it, or are below it
``expand``    globs and lists become jobs, conflicts are found before anything runs
``codes``     rules that the jobs file names are there
``lock``      what a job depends on, and whether that has changed since it was done
``local``     jobs on this machine, each in a process of its own
``cluster``   the same jobs on Dask
``entry``     all of it, for Python and for the command line
"""
