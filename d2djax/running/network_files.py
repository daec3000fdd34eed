"""Reads the user's networks from files such as `city.npz`, whose arrays have the names of `GivenNetwork`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from d2djax.data import npz
from d2djax.data.types import DataError
from d2djax.running.machine import available_memory

if TYPE_CHECKING:
    from d2djax.networks import GivenNetwork


def load_network(path: str | os.PathLike[str]) -> GivenNetwork:
    """Reads parts of one or several networks from a file of `numpy.savez`, without unpickling.

    Args:
        path: `city.npz` with at least one of the arrays gain, position, trust and counts, see `GivenNetwork`.

    Returns:
        The checked parts, with the path of the file.

    Raises:
        DataError: the file is missing or damaged, has an unknown array, or an array has a wrong shape or value.
    """
    from d2djax.network import PARTS
    from d2djax.networks import GivenNetwork, check_own

    place, found = npz.arrays(path, (), tuple(PARTS), available_memory())
    network = GivenNetwork(**found, file=str(place))
    try:
        check_own(network)
    except ValueError as error:
        raise DataError(f"{place}: {str(error).removeprefix('recipe.network: ')}") from None
    return network
