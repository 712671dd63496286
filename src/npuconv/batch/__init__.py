"""Many models for many targets: isolated jobs, results in a fixed order, one summary.

``jobsfile``  schema of the jobs file, and options given beside it
``expand``    jobs of globs and lists; conflicts are found before anything runs
``job``       a job, its place and its outcome; settings of a run, sizes and durations
``lock``      digests of the inputs of a job, to tell whether it is up to date
``worker``    process of one job
``local``     jobs on this machine, each in a process of its own
``cluster``   jobs on Dask; ``remote`` is the part that runs on a worker
``entry``     all of it, for Python and for the command line; outcomes, lock of the folder
"""
