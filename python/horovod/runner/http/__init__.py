"""The rendezvous server for ranks of other launchers, under the name of Horovod's package."""
