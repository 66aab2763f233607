"""Hosts, settings, secrets and processes, for programs that place ranks by themselves."""
