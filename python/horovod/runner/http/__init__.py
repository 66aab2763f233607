"""What ranks of other launchers meet at; the name of the package is Horovod's."""
