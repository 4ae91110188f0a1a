"""Workers of several processes, as of a distributed training: forked from a process that has imported PyTorch."""

import importlib
import os
import pickle
import socket
import sys
from pathlib import Path

import torch
import torch.multiprocessing as mp

from nearfar.deep import distributed

from . import forking

TIME_LIMIT = 1200  # seconds, after which the processes are ended; many on a busy machine take minutes


def run_in_processes(worker, world, *given, imported="torch"):
    """Run `worker(rank, world, *given)` in `world` processes, which find one another through the environment.

    `worker` is a function of a module, and what is given to it can be pickled. An error in a process is raised here.
    Where processes can be forked, they share a module that was imported before, and what they print is returned.
    """
    if not hasattr(os, "fork"):
        mp.spawn(enter, (worker, world, free_port(), given), nprocs=world)
        return None
    # by its name, because the forked process imports its module, once for all workers
    words = [imported, worker.__module__, worker.__qualname__, world, pickle.dumps(given).hex()]
    ended = forking.run("-m", "tests.processes", *words, cwd=Path(__file__).parents[1], limit=TIME_LIMIT)
    if ended.returncode != 0:
        raise RuntimeError(f"a process ended with status {ended.returncode}:\n{ended.stderr}")
    return ended.stdout


def free_port():
    """Return a port of this machine that nothing listens to."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def enter(rank, worker, world, port, given):
    """Run a worker in the process in which this is called."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    try:
        worker(rank, world, *given)
    finally:
        distributed.leave()


def main():
    """Start the workers that the command line names, and wait for them."""
    imported, module, name, world, given = sys.argv[1:]
    importlib.import_module(imported)
    worker = getattr(importlib.import_module(module), name)
    arguments = (worker, int(world), free_port(), pickle.loads(bytes.fromhex(given)))
    mp.start_processes(enter, arguments, nprocs=int(world), start_method="fork")


if __name__ == "__main__":
    main()
