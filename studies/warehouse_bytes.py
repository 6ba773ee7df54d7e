"""Bytes that leave a PostgreSQL server for the fit of a million rounds, counted on the wire.

The rounds are made in the server. A proxy between it and this process counts what passes: once for a fit whose sums the
database computes, once for reading the same rows. Both posteriors are compared.
"""

import argparse
import os
import socket
import threading
import time

import ibis
import numpy as np
import psycopg
from postgres_server import running_server

import manyarms as ma

CONTEXT = ["age", "spend", "city", "hour"]


def make_rounds(address, n_rounds, n_actions):
    """A table of rounds, generated in the database: two numbers, a text of 5 levels, an hour, an item, a margin."""
    with psycopg.connect(address) as connection:
        connection.execute("SELECT setseed(0.5)")
        connection.execute(
            f"""
            CREATE TABLE logs AS
            SELECT 18 + floor(60 * random())::int AS age, -5 * ln(1 - random()) AS spend,
                   (ARRAY['Bern', 'Oslo', 'Riga', 'Rome', 'Turin'])[1 + floor(5 * random())::int] AS city,
                   floor(24 * random())::int AS hour, 'item' || floor({n_actions} * random() ^ 2)::int AS item,
                   random() + random() - random() AS margin
            FROM generate_series(1, {n_rounds})"""
        )


class CountingProxy:
    """A proxy on the loopback interface that counts the bytes from the server to the client."""

    def __init__(self, port):
        self.n_bytes, self._server = 0, ("127.0.0.1", port)
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = self._door.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            client, _ = self._door.accept()
            server = socket.create_connection(self._server)
            threading.Thread(target=self._pass, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, True), daemon=True).start()

    def _pass(self, source, target, count):
        while block := source.recv(1 << 16):
            self.n_bytes += len(block) if count else 0
            target.sendall(block)
        target.close()


def fitted(logs, catalog, features):
    """The posterior under a fixed prior, with the features given."""
    logs = ma.read_logs(logs, CONTEXT, "item", "margin", catalog=catalog, features=features)
    return ma.fit(logs, ma.priors.from_catalog(catalog, dim=logs.dim), ma.Gaussian(1.0))


def run(n_rounds, n_actions):
    """The bytes and seconds of a fit in the server and of reading the rows, and how far the posteriors differ."""
    catalog = ma.Catalog([f"item{a}" for a in range(n_actions)], categories=[a % 20 for a in range(n_actions)])
    with running_server() as address:
        make_rounds(address, n_rounds, n_actions)
        proxy = CountingProxy(int(address.rpartition(":")[2].partition("/")[0]))
        head, _, _ = address.rpartition(":")
        through = f"{head}:{proxy.port}/postgres?table=logs"
        features = ma.read_logs(through, CONTEXT, "item", "margin", catalog=catalog).features
        learned, start = proxy.n_bytes, time.perf_counter()
        there = fitted(through, catalog, features)
        summed, middle = proxy.n_bytes - learned, time.perf_counter()
        rows = ibis.connect(through.partition("?")[0]).table("logs").to_pyarrow()
        read, end = proxy.n_bytes - learned - summed, time.perf_counter()
        here = fitted(rows, catalog, features)
        gap = np.abs(there.weights.action_mean() - here.weights.action_mean()).max()
    seen, d = len(there.statistics.sums.actions), features.dim
    return {
        "rounds": n_rounds, "actions seen": seen, "features": d, "sums": seen * (d + 1) * (d + 2) // 2,
        "bytes to learn the features": learned, "bytes of the fit": summed, "bytes of the rows": read,
        "seconds of the fit": middle - start, "seconds to read the rows": end - middle,
        "largest difference of a posterior mean": float(gap),
    }  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1_000_000)
    parser.add_argument("--actions", type=int, default=500)
    arguments = parser.parse_args()
    os.environ.pop("PGPASSWORD", None)
    for name, value in run(arguments.rounds, arguments.actions).items():
        print(f"{name:40} {value:,.3g}" if isinstance(value, float) else f"{name:40} {value:,}")
