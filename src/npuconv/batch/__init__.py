"""Many models for many targets: isolated jobs, results in a fixed order, one summary.

``jobs_file``    the jobs file: its schema, the options given beside it, and its jobs
``job``          a job, its folders, events and outcome; settings of a run, sizes and durations
``fingerprint``  digests of the inputs of a job, to decide whether its output is up to date
``worker``       the process of one job
``local``        jobs on this machine, each in a process of its own
``cluster``      jobs on Dask: submission, and the function that runs on a worker
``run_jobs``     a batch from its jobs file to its report; lock of the output folder
"""
