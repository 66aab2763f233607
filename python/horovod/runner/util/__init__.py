"""Helpers of the launcher that programs which start jobs import."""
