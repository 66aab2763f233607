"""The job, this process's place in it and process sets, by the module paths of Horovod; no framework."""
