"""Connects an ElasticDriver with the server at which its processes find each other."""

from __future__ import annotations


class ElasticRendezvous:
    """What ``RendezvousServer.start`` takes for an elastic job."""

    def __init__(self, driver: object) -> None:
        self.driver = driver


def create_rendezvous_handler(driver: object) -> ElasticRendezvous:
    """Returns what ``RendezvousServer.start`` takes so that the ranks are those of this driver."""
    return ElasticRendezvous(driver)
