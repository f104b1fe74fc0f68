"""What a message takes on a machine's links, for rows of op tables and steps of many devices alike."""

from fomkit.network.exchange import Algorithm, Exchange, Group, Network

__all__ = ["Algorithm", "Exchange", "Group", "Network"]
