"""Serve the best items of a context over HTTP, from a model file and an index of its item vectors.

The index is FAISS's exact one, or plain NumPy where FAISS is not installed. Where the order by inner products is only
approximate, as for clicks, the index proposes ten times as many items, and the model ranks those.

    python examples/serve_items.py model.arrow --port 8765
    curl -d '{"age": 31, "city": "Oslo"}' 'http://127.0.0.1:8765/top?k=3'

The server listens on this machine only. It is a small example, not a server for the open internet.
"""

from __future__ import annotations

import argparse
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pyarrow as pa

import manyarms as ma

LONGEST = 1 << 16
"""The longest request body in bytes."""


class TopItems:
    """The best items of a context, from an index."""

    def __init__(self, posterior: ma.Posterior):
        self.policy = ma.Greedy(posterior)
        self.items = posterior.item_vectors()
        self.search = index_of(self.items.vectors)

    def best(self, context: dict[str, Any], k: int) -> list[Any]:
        """The ids of the k best items, best first."""
        table = pa.Table.from_pylist([context])
        wanted = k if self.items.exact else 10 * k
        rows = self.search(self.items.queries(table), min(wanted, len(self.items)))
        if not self.items.exact:
            rows = self.policy.top_k(table, k, eligible=rows.tolist())
        return self.items.ids[rows[0]].tolist()


def index_of(vectors: np.ndarray) -> Any:
    """A function that finds the rows with the largest inner products, best first."""
    try:
        import faiss  # noqa: PLC0415
    except ImportError:
        return lambda queries, k: np.argsort(-(queries @ vectors.T), axis=1, kind="stable")[:, :k]
    index = faiss.IndexFlatIP(vectors.shape[1])
    index.add(vectors)
    return lambda queries, k: index.search(queries, k)[1]


def make_server(posterior: ma.Posterior, port: int) -> ThreadingHTTPServer:
    """A server of `POST /top?k=10` on this machine; the body is a context as JSON."""
    top = TopItems(posterior)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, answer = self._answer()
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _answer(self) -> tuple[int, dict[str, Any]]:
            url, size = urlsplit(self.path), self.headers.get("Content-Length", "0")
            if url.path != "/top" or not size.isdecimal() or int(size) > LONGEST:
                return 404, {"error": "POST a context as JSON to /top?k=10."}
            try:
                context = json.loads(self.rfile.read(int(size)))
                k = int(parse_qs(url.query).get("k", ["10"])[0])
                if not isinstance(context, dict) or not 1 <= k <= len(top.items):
                    raise ValueError(f"send one JSON object, and k between 1 and {len(top.items)}")
                return 200, {"items": top.best(context, k)}
            except (ValueError, pa.ArrowException) as problem:
                # manyarms' own errors about a missing column or a wrong value are ValueErrors too.
                return 400, {"error": str(problem)}

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing for a request."""

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


def main() -> None:
    """Serve the model that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a file that `manyarms fit` wrote")
    parser.add_argument("--port", type=int, default=8765)
    arguments = parser.parse_args()
    with make_server(ma.load(arguments.model), arguments.port) as server:
        print(f"Serving on http://127.0.0.1:{server.server_port}/top")
        server.serve_forever()


if __name__ == "__main__":
    main()
