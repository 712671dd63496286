"""Many models for many targets: isolated jobs, results in a fixed order, one summary.

``expand``   jobs file: its schema, the options given beside it, and its jobs
``job``      a job, its place, events and outcome; settings of a run, sizes and durations
``lock``     digests of the inputs of a job, to decide whether it is up to date
``worker``   process of one job
``local``    jobs on this machine, each in a process of its own
``cluster``  jobs on Dask: the part that submits them, and the part that runs on a worker
``entry``    all of it, for Python and for the command line; outcomes, lock of the folder
"""
